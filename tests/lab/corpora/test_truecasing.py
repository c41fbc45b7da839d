"""Truecasing: cases by hand, those of sacremoses on real text, and every file of a corpus."""

from pathlib import Path

from commands_for_tests import PAIRS
from sacremoses import MosesTokenizer, MosesTruecaser
from test_parallel_corpus import location

from ode_transformer.lab.corpora.parallel_corpus import ParallelCorpus
from ode_transformer.lab.corpora.truecasing import count_cases, truecase


def test_real_text_is_cased_as_by_sacremoses() -> None:
    tokenizer, reference = MosesTokenizer("en"), MosesTruecaser()
    lines = [tokenizer.tokenize(source, return_str=True) for source, _ in PAIRS]
    reference.train([line.split() for line in lines])
    cased = list(truecase(count_cases(lines), lines))
    assert cased == [reference.truecase(line, return_str=True, use_known=True) for line in lines]
    assert cased != lines


def test_a_corpus_is_cased_but_for_its_raw_references(tmp_path: Path) -> None:
    files = {}
    for name, lines in {"train": ["A b .", "Ein b a"], "test": ["A C", "B A"]}.items():
        for side in ("de", "en"):
            files[f"{name}_{side}"] = tmp_path / f"{name}.{side}"
            files[f"{name}_{side}"].write_text("".join(f"{line}\n" for line in lines))
    corpus = ParallelCorpus(
        **{"kind": "parallel", "source": "de", "target": "en", "text": {}, "truecase": True},
        **{"train": [location("train")], "valid": [location("test")]},
        **{"test": {"set": [location("test")]}, "references": {"set": [location("test")]}},
    )
    corpus.build(files, tmp_path / "corpus", 1)
    texts = {path.name: path.read_text() for path in (tmp_path / "corpus").iterdir()}
    assert {name for name, text in texts.items() if text.startswith("A ")} == {"raw.test.en", "raw1.test.en"}
    assert texts["test.de"] == texts["tokens1.test.en"] == "a C\nb a\n"
