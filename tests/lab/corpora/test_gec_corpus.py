"""The corpus of grammatical error correction, made from archives of a few sentences each, and pairs of raw Lang-8."""

import json
from pathlib import Path

import pytest
from gec_stand_in import SENTENCES, block, m2_text, write_punkt, write_raw

from ode_transformer.lab.corpora.gec_corpus import GecCorpus, M2Corpus, apply_edits, hold_out_sentences
from ode_transformer.lab.corpora.lang8 import entry_pairs, word_tokenizer
from ode_transformer.lab.metrics.m2_file import AnnotatedSentence, Edit, read_m2
from ode_transformer.lab.metrics.max_match import Counts, max_match


def lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines()


def pairs(folder: Path, split: str) -> list[tuple[str, str]]:
    return list(zip(lines(folder / f"{split}.err"), lines(folder / f"{split}.cor"), strict=True))


def edited(shift: int, sentences: list[str] = SENTENCES) -> list[tuple[str, str]]:
    """Return the expected pairs of a data set, by its M2 text; its corrections are the sentences themselves."""
    sources = [line[2:] for line in m2_text(shift, sentences).splitlines() if line.startswith("S ")]
    return [pair for pair in zip(sources, sentences, strict=True) if pair[0] != pair[1]]


def test_the_published_corpus(tmp_path: Path):
    counts = GecCorpus().build(write_raw(tmp_path / "raw"), tmp_path / "corpus", 1)
    nucle = edited(0)
    assert pairs(tmp_path / "corpus", "valid") == nucle[3::4]
    other_pairs = [pair for number, pair in enumerate(nucle, start=1) if number % 4]
    assert pairs(tmp_path / "corpus", "train") == [*other_pairs, *edited(1), *edited(2), *edited(3)]
    assert counts == {split: len(pairs(tmp_path / "corpus", split)) for split in ("train", "valid", "test")}
    assert counts["train"] > 80
    assert len(nucle) < len(SENTENCES)  # some sentence has no mistake, and is left out
    test = pairs(tmp_path / "corpus", "test")  # whole, and can be scored
    assert [target for _, target in test] == SENTENCES[10:30]
    gold = read_m2(tmp_path / "corpus" / "test.m2")
    assert [source for source, _ in test] == [" ".join(sentence.tokens) for sentence in gold]
    assert (tmp_path / "corpus" / "test.m2").read_text() == m2_text(2, SENTENCES[10:30], annotators=2)
    matched = max_match([target for _, target in test], gold)
    result = sum((sentence.counts for sentence in matched), Counts())
    assert result.correct == result.gold == result.proposed > 10


def test_validation_sentences_are_those_that_python_2_draws():
    """The order of ``random.seed(1234); random.shuffle(list(range(10)))`` in Python 2.7."""
    sentences = [AnnotatedSentence(("a",) * (20 - n), {0: (Edit(0, 1, "x", (("b",),)),)}) for n in range(10)]
    unedited = AnnotatedSentence(("a",), {0: ()})
    train, valid = hold_out_sentences([*reversed(sentences), unedited], 4)
    numbers = [20 - len(sentence.tokens) for sentence in (*valid, *train[:-1])]
    assert numbers == [8, 1, 7, 4, 2, 5, 6, 0, 3, 9]
    assert (len(valid), train[-1]) == (2, unedited)


def test_edits_are_applied_as_by_the_published_script():
    changes = ((0, 1, ("A", "B")), (1, 1, ("C",)), (1, 1, ("D",)), (1, 3, ()))
    edits = tuple(Edit(start, end, "x", (correction,)) for start, end, correction in changes)
    assert apply_edits(AnnotatedSentence(tuple("abcd"), {0: edits})) == ["A", "B", "C", "D", "d"]
    overlapping = (Edit(0, 2, "x", (("A",),)), Edit(1, 3, "x", (("B",),)), Edit(3, 4, "Um", ((),)))
    assert apply_edits(AnnotatedSentence(tuple("abcd"), {0: overlapping})) == ["A", "B", "d"]


def test_m2_files_of_ones_own(tmp_path: Path):
    edited = {"a b": [(0, 1, "x", "A")], "c": [(0, 1, "x", "-NONE-")], "d": [], "e " * 81: [(0, 1, "x", "E")]}
    text = "".join(block(sentence.split(), edits) for sentence, edits in edited.items())
    (tmp_path / "a.m2").write_text(text)
    corpus = M2Corpus(kind="m2", train="a", valid="a", test={"one": "a", "two": "a"})
    counts = corpus.build({name: tmp_path / "a.m2" for name in corpus.sources}, tmp_path / "corpus", 1)
    assert counts == {"train": 1, "left out": 2, "valid": 2, "test": 4, "test1": 4}
    assert pairs(tmp_path / "corpus", "train") == [("a b", "A b")]
    assert pairs(tmp_path / "corpus", "test1")[:3] == [("a b", "A b"), ("c", ""), ("d", "d")]
    assert (tmp_path / "corpus" / "test1.m2").read_text() == text


GOOD, BAD, JAPANESE = "I have been to the school.", "I has been at the school.", "私は学校に行きました。"


def entry(sentences: list[str], corrections: list[list[str]], language: str = "English") -> str:
    return json.dumps(["12", "34", language, "Japanese", sentences, corrections], ensure_ascii=False)


@pytest.mark.parametrize(
    ("line", "pairs"),
    [
        (entry([BAD], [[GOOD, "I went there."]]), [(BAD, GOOD), (BAD, "I went there.")]),
        (entry([BAD, GOOD], [[GOOD], []]), [(BAD, GOOD), (GOOD, GOOD)]),  # not corrected: a pair with itself
        (entry([BAD, GOOD], [[GOOD], [""]]), [(BAD, GOOD), (GOOD, GOOD)]),
        (entry([GOOD, GOOD], [[], []]), []),  # nobody read the entry
        (entry([BAD], [[GOOD]], "French"), []),
        (entry([JAPANESE, BAD], [[GOOD], [JAPANESE, GOOD]]), [(BAD, GOOD)]),  # neither side in Japanese
        (
            entry([BAD], [["I [f-red]have[/f-red] [sline]has[/sline] been [f-blue]so.[/sline]"]]),
            [(BAD, "I have  been so.")],
        ),
        ('["1", "2", "English", "Japanese", 5, [[]]]', []),
    ],
)
def test_pairs_of_an_entry(line: str, pairs: list[tuple[str, str]]) -> None:
    assert entry_pairs(line) == pairs


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("He said “I don’t know”, and left.", "He said `` I do n't know , '' and left ."),
        ("Mr. Smith left. She came…", "Mr. Smith left . She came ..."),  # two sentences: the first loses its full stop
        ("It cost\t$5 (50%)!\x07", "It cost $ 5 ( 50 % ) !"),
    ],
)
def test_words_are_those_of_nltk_after_plain_punctuation(tmp_path: Path, text: str, tokens: str) -> None:
    assert word_tokenizer(write_punkt(tmp_path / "punkt_tab.zip"))(text) == tokens
