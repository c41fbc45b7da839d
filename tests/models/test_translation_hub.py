"""Translations of the command are those of fairseq's own interface, a single model's and an ensemble's."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from changed_checkpoints import rewrite
from checkpoint_for_tests import make_model
from fairseq.hub_utils import GeneratorHubInterface
from plain_models import ANY_NAME, PAIRS

from ode_transformer.cli.command import main
from ode_transformer.models import ODETransformerModel

SOURCES = [source for source, _ in PAIRS]


def hub_of(folder: Path, files: str = "model.pt") -> GeneratorHubInterface:
    options = {"bpe": "sentencepiece", "data_name_or_path": str(folder)}
    return ODETransformerModel.from_pretrained(str(folder), files, **options)


def translate(path: object, lines: list[str], tmp_path: Path, *options: object) -> list[str]:
    """Return what the command writes."""
    text, output = tmp_path / "text", tmp_path / "output"
    text.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    words = ("translate", "--path", path, "--input", text, "--output", output, "--cpu", "--beam", 3, "--max-len-b", 12)
    assert main([*map(str, words), *map(str, options)]) == 0
    return output.read_text(encoding="utf-8").splitlines()


def test_translations_in_the_order_of_the_text(untrained: Path, tmp_path: Path) -> None:
    expected = hub_of(untrained.parent).translate(SOURCES, beam=3, lenpen=0.6, max_len_b=12)
    assert len(set(expected)) > 0.8 * len(expected)  # so that a wrong order would be seen
    assert translate(untrained, SOURCES, tmp_path, "--lenpen", 0.6) == expected


def test_a_folder_of_any_name(untrained: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(untrained.parent, tmp_path / ANY_NAME)
    assert hub_of(folder).translate("a b") == hub_of(untrained.parent).translate("a b")


def test_an_ensemble(untrained: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(untrained.parent, tmp_path / "model")
    generator = torch.Generator().manual_seed(5)

    def change(state: dict[str, Any]) -> None:
        for tensor in state["model"].values():
            if tensor.is_floating_point():
                tensor.add_(0.3 * torch.randn(tensor.shape, generator=generator))

    other = rewrite(folder, change).rename(folder / "other.pt")
    shutil.copy(untrained, folder)
    both, *alone = (translate(path, SOURCES[:12], tmp_path) for path in (f"{untrained}:{other}", untrained, other))
    assert both == hub_of(folder, "model.pt:other.pt").translate(SOURCES[:12], beam=3, max_len_b=12)
    assert both not in alone


def test_an_exported_model_with_an_adaptive_softmax(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which is a part of fairseq's, so that its folder needs fairseq."""
    from transformers import AutoModelForSeq2SeqLM  # slow

    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path / "modules"))
    path = make_model(tmp_path, "--arch", "ode_transformer_euler_tiny", "--adaptive-softmax-cutoff", "50")
    assert main(["export", "--to", "huggingface", "--path", str(path), "--output", str(tmp_path / "exported")]) == 0
    model = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "exported", trust_remote_code=True, local_files_only=True)
    hub = hub_of(tmp_path)
    for source in map(hub.encode, SOURCES[:5]):
        ((expected, *_),) = hub.generate([source], beam=4, lenpen=0.6, max_len_b=12)
        found = model.generate(source[None], num_beams=4, length_penalty=0.6, max_length=14)
        assert found[0, 1:].tolist() == expected["tokens"].tolist()
