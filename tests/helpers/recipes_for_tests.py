"""Any recipe as a test can go through it: its raw files written by a stand-in, its sizes and lengths small."""

import hashlib
from pathlib import Path
from typing import Any

import gec_stand_in
import parallel_stand_in
import ptb_stand_in
import pytest
import summarisation_stand_in
import yaml

from ode_transformer.cli import main
from ode_transformer.lab.corpora.download import read_sources
from ode_transformer.lab.recipes import recipe as recipe_module
from ode_transformer.lab.recipes.options import find_recipe, recipe_names
from ode_transformer.lab.recipes.recipe import Recipe, read_recipe

# Those with scores: the quickstart's, out of packages, and pre-training, scored by GLUE, have tests of their own.
NAMES = [name for name in recipe_names() if not name.startswith(("quickstart", "bert_pretraining"))]
SIZES = {"embed-dim": 16, "ffn-embed-dim": 16, "layers": 1, "attention-heads": 2}
SHORT = {"max-len-a": 0, "max-len-b": 6}  # an untrained model does not find the end of a sentence


def small(name: str, folder: Path) -> Path:
    """Writes a copy of a recipe whose numbers fit its stand-in; the rest is as it was."""
    recipe = yaml.safe_load(find_recipe(name).read_text(encoding="utf-8"))
    stacks = ("encoder", "decoder") if "task" not in recipe else ("decoder",)
    recipe["train"] |= {f"{stack}-{size}": number for stack in stacks for size, number in SIZES.items()}
    recipe["train"] |= {"max-update": 3}
    # All of the training text, or a part of it where checkpoints are saved within epochs.
    recipe["tokens_per_update"] = 1024 if "every" in recipe["average"] else 16384
    if "task" not in recipe:
        recipe["generate"] |= SHORT | ({"min-len": 1} if "min-len" in recipe["generate"] else {})
    if "merges" in recipe["vocabulary"]:
        recipe["vocabulary"]["merges"] = 300
    if "hold_out" in recipe["corpus"]:
        recipe["corpus"]["hold_out"] = min(recipe["corpus"]["hold_out"], 23)
    if recipe["corpus"]["kind"] == "penn_treebank":
        recipe["corpus"]["types"] = ptb_stand_in.TYPES
    recipe["average"] |= {"last": 2} if "last" in recipe["average"] else {}
    recipe["average"] |= {"every": 1} if "every" in recipe["average"] else {}
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(recipe, allow_unicode=True), encoding="utf-8")
    return path


def write_raw(recipe: Recipe, folder: Path) -> dict[str, Path]:
    """Write small raw files for a recipe; return their paths by their names in the source list."""
    folder.mkdir()
    others = {"summaries": summarisation_stand_in, "corrections": gec_stand_in, "penn_treebank": ptb_stand_in}
    if recipe.corpus.kind in others:
        return others[recipe.corpus.kind].write_raw(folder)
    return parallel_stand_in.write_raw(recipe, folder)


def counts_of(recipe: Recipe) -> dict[str, int]:
    """Lines that preparation has to find in the stand-in, to keep and to leave out."""
    if recipe.corpus.kind == "summaries":
        train, valid, test = summarisation_stand_in.SPLITS.values()
        return {"train": train - 1, "valid": valid, "test": test, "left out": 1}
    if recipe.corpus.kind == "penn_treebank":
        return ptb_stand_in.SENTENCES
    if recipe.corpus.kind == "corrections":
        return gec_stand_in.counts_of(recipe.corpus)
    return parallel_stand_in.counts_of(recipe.corpus)


def publish(files: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace the source list by one with the checksums of these files."""
    sources = read_sources()
    for name, path in files.items():
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        changes = {"sha256": digest, "md5": None, "checksum_from": "the test", "bytes": path.stat().st_size}
        sources[name] = sources[name].model_copy(update=changes)
    monkeypatch.setattr(recipe_module, "read_sources", lambda: sources)


def tree(folder: Path) -> dict[str, bytes]:
    """Every file of a folder and what is in it."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


class Runner:
    """The commands for a small recipe and its raw files.

    :param name: of the recipe
    :param folder: for everything
    """

    def __init__(self, name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.raw, self.output = folder, folder / "raw", folder / "output"
        self.path = small(name, folder)
        self.recipe = read_recipe(self.path)
        self.files = write_raw(self.recipe, self.raw)
        self.data = self.output / name
        publish(self.files, monkeypatch)

    def change(self, part: str, **values: Any) -> None:
        """Other values for keys of a part of the recipe; ``_`` stands for a dash."""
        recipe = yaml.safe_load(self.path.read_text(encoding="utf-8"))
        recipe[part] |= {key.replace("_", "-"): value for key, value in values.items()}
        self.path.write_text(yaml.safe_dump(recipe, allow_unicode=True), encoding="utf-8")

    def __call__(self, action: str, *words: object) -> int:
        """Exit status of an action."""
        own = ["--output", self.output]
        own += ["--raw", self.raw, "--workers", 1] if action in ("prepare", "reproduce") else []
        own += ["--gpus", 0] if action != "prepare" else []
        return main(list(map(str, [action, self.path, *own, *words])))
