"""Parallel corpora from raw files: what is held out, what is left out, and how test sets are written."""

from pathlib import Path
from typing import Any

import pytest

from ode_transformer.lab.corpora.parallel_corpus import ParallelCorpus
from ode_transformer.support.errors import UserError

SHORT = [(f"Quelle {number}", f"Ziel {number}") for number in range(1, 10)]
TEXTS = {
    "train": SHORT,
    "valid": [("Kurz", "short"), ("", "nothing"), SHORT[0]],
    "test": [("„Es geht’s“", "“It’s well-known”"), ("Kurz", "short")],
    "second": [("", "It’s known"), ("", "Brief")],
}


def write_sides(folder: Path, texts: dict[str, list[tuple[str, str]]]) -> dict[str, Path]:
    """Write both sides of each text; return the paths by their names in a location."""
    files = {}
    for name, pairs in texts.items():
        for side, lines in zip(("de", "en"), zip(*pairs, strict=True), strict=True):
            path = files[f"{name}_{side}"] = folder / f"{name}.{side}"
            path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return files


def location(name: str, **settings: Any) -> dict[str, Any]:
    return {"source_file": f"{name}_de", "target_file": f"{name}_en", **settings}


def test_every_split_and_reference_has_its_files(tmp_path: Path) -> None:
    files, output = write_sides(tmp_path, TEXTS), tmp_path / "corpus"
    corpus = ParallelCorpus(
        **{"kind": "parallel", "source": "de", "target": "en", "text": {"lowercase": True}},
        train=[location("train"), location("valid")],
        valid=[location("valid")],
        test={"set": [location("test")], "other": [location("valid"), location("test")]},
        references={"set": [location("second", straight_apostrophes=True)]},
    )
    counts = corpus.build(files, output, 1)
    assert counts == {"train": 12, "valid": 3, "test": 2, "test1": 5}
    texts = {path.name: path.read_text(encoding="utf-8").split("\n")[:-1] for path in output.iterdir()}
    sides = {f"{split}.{side}" for split in counts for side in ("de", "en")}
    assert texts.keys() - sides == {"raw.test.en", "raw1.test.en", "raw.test1.en", "tokens1.test.en"}
    assert texts["train.en"] == [*(target.lower() for _, target in SHORT), "short", "nothing", "ziel 1"]
    assert corpus.tests == ["set", "other"]
    assert texts["tokens1.test.en"] == ["it's known", "brief"]
    assert texts["raw1.test.en"] == ["It’s known", "Brief"]
    with pytest.raises(UserError, match="no example for the valid split"):
        corpus.model_copy(update={"valid": [], "hold_out": 100}).build(files, output, 1)
    assert (output / "raw1.test.en").exists()


def test_a_corpus_is_cased_but_for_its_raw_references(tmp_path: Path) -> None:
    texts = {"train": ["A b .", "Ein b a"], "test": ["A C", "B A"]}
    files = write_sides(tmp_path, {name: [(line, line) for line in lines] for name, lines in texts.items()})
    corpus = ParallelCorpus(
        **{"kind": "parallel", "source": "de", "target": "en", "text": {}, "truecase": True},
        **{"train": [location("train")], "valid": [location("test")]},
        **{"test": {"set": [location("test")]}, "references": {"set": [location("test")]}},
    )
    corpus.build(files, tmp_path / "corpus", 1)
    texts = {path.name: path.read_text() for path in (tmp_path / "corpus").iterdir()}
    assert {name for name, text in texts.items() if text.startswith("A ")} == {"raw.test.en", "raw1.test.en"}
    assert texts["test.de"] == texts["tokens1.test.en"] == "a C\nb a\n"
