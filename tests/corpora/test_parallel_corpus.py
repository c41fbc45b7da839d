"""Parallel corpora from raw files: what is held out, what is left out, and how test sets are written."""

from pathlib import Path
from typing import Any

import pytest

from ode_transformer.corpora.parallel_corpus import ParallelCorpus
from ode_transformer.support.errors import UserError

SHORT = [(f"Quelle {number}", f"Ziel {number}") for number in range(1, 10)]


class Raw:
    """Raw files by the names of their sources, and the corpus that is built from them."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.files = folder / "raw", {}
        self.folder.mkdir()
        self.output = folder / "corpus"
        self.write("train", SHORT)
        self.write("valid", [("Kurz", "short"), ("", "nothing"), SHORT[0]])
        self.write("test", [("„Es geht’s“", "“It’s well-known”"), ("Kurz", "short")])

    def write(self, name: str, pairs: list[tuple[str, str]]) -> None:
        for side, lines in zip(("de", "en"), zip(*pairs, strict=True), strict=True):
            path = self.files[f"{name}_{side}"] = self.folder / f"{name}.{side}"
            path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")

    def corpus(self, **settings: Any) -> ParallelCorpus:
        values = {"valid": [location("valid")], "test": {"set": [location("test")]}, "text": {}} | settings
        return ParallelCorpus.model_validate(
            {"kind": "parallel", "source": "de", "target": "en", "train": [location("train")], **values}
        )

    def build(self, **settings: Any) -> dict[str, int]:
        return self.corpus(**settings).build(self.files, self.output, 1)

    def lines(self, name: str) -> list[str]:
        return (self.output / name).read_text(encoding="utf-8").split("\n")[:-1]


def location(name: str, **settings: Any) -> dict[str, Any]:
    return {"source_file": f"{name}_de", "target_file": f"{name}_en", **settings}


@pytest.fixture
def raw(tmp_path: Path) -> Raw:
    return Raw(tmp_path)


def test_every_split_and_reference_has_its_files(raw: Raw) -> None:
    raw.write("second", [("", "It’s known"), ("", "Brief")])
    settings = {
        "train": [location("train"), location("valid")],
        "test": {"set": [location("test")], "other": [location("valid"), location("test")]},
        "references": {"set": [location("second", straight_apostrophes=True)]},
    }
    counts = raw.build(text={"lowercase": True}, **settings)
    assert counts == {"train": 12, "valid": 3, "test": 2, "test1": 5}
    assert sorted(path.name for path in raw.output.iterdir()) == sorted(
        ["raw.test.en", "raw.test1.en", "raw1.test.en", "tokens1.test.en"]
        + [f"{split}.{side}" for split in counts for side in ("de", "en")]
    )
    assert raw.lines("train.en") == [*(target.lower() for _, target in SHORT), "short", "nothing", "ziel 1"]
    assert raw.corpus(**settings).tests == ["set", "other"]
    assert raw.lines("tokens1.test.en") == ["it's known", "brief"]
    assert raw.lines("raw1.test.en") == ["It’s known", "Brief"]
    with pytest.raises(UserError, match="no example for the valid split"):
        raw.build(valid=[], hold_out=100)
    assert raw.lines("raw1.test.en") == ["It’s known", "Brief"]
