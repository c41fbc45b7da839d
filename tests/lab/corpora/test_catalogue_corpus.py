import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiny_wheels import compile_mo, make_wheel

from ode_transformer.lab.corpora.catalogue_corpus import CatalogueCorpus, choose_translations, clean_message
from ode_transformer.lab.corpora.catalogue_files import catalogue_files, choose_language, read_po, read_wheel
from ode_transformer.lab.corpora.wheel_corpus import SPLITS, Pair, normalise
from ode_transformer.support.errors import UserError

LETTERS = "abcdefghij"
CATALOGUE = {f"The thing {a}{b}{c} here": f"Piatra {a}{b}{c} şi" for a in LETTERS for b in LETTERS for c in "abcdef"}
MO = "locale/ro/LC_MESSAGES/app.mo"
JUNK = {"Hello %(name)s there": "Hallo %(name)s", "Single": "Einzeln", "Same text": "Same text"}


def lines(output: Path, language: str) -> list[str]:
    names = [f"{split}.{language}" for split in SPLITS]
    return [line for name in names for line in (output / name).read_text(encoding="utf-8").splitlines()]


UNFIT = (
    "%s old files|old {name} files|old&nbsp;files here|an **old** file|see http://example|open setup.py now|"
    "use --force now|one file(s) left|two\nlines of text|the MAX_SIZE value|old → new file|chat;talk;share it"
)


@pytest.mark.parametrize("phrase", UNFIT.split("|"))
def test_dropped_on_either_side(phrase: str) -> None:
    assert clean_message(Pair(phrase, "gute Worte")) is None
    assert clean_message(Pair("fine words", phrase)) is None


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
    corpus = CatalogueCorpus(kind="catalogues", packages="quickstart_catalogues.txt", target="ro")
    output = tmp_path / "o"
    with pytest.raises(UserError, match="no catalogues of --target ro; languages of most packages: none at all"):
        corpus.build({"wheels": tmp_path}, output, 1)
    make_wheel(tmp_path, "first", {MO: compile_mo({"One thing": "Un lucru"})})
    with pytest.raises(UserError, match="no example for the .* split"):
        corpus.build({"wheels": tmp_path}, output, 1)
    # The second package repeats a third of the first one's phrases, in capitals.
    second = {key.upper(): value for key, value in list(CATALOGUE.items())[300:]}
    make_wheel(tmp_path, "first", {MO: compile_mo(dict(list(CATALOGUE.items())[:400]) | JUNK)})
    make_wheel(tmp_path, "second", {MO: compile_mo(second)}, "License: BSD\n")
    make_wheel(tmp_path, "without", {"a.py": "print()"})
    counts = corpus.build({"wheels": tmp_path}, output, 1)
    pairs = list(zip(lines(output, "en"), lines(output, "ro"), strict=True))
    assert len(pairs) == len(CATALOGUE)
    assert {source.lower(): target for source, target in pairs} == {
        source.lower(): target.replace("ş", "ș") for source, target in CATALOGUE.items()
    }
    origins = (output / "SOURCES.md").read_text()
    assert re.findall(r"\| (\w+) \| [\w.]+ \| (\w+) \| (\d+) \| (\d+) \|", origins) == [
        ("first", "MIT", "400", "300"),
        ("second", "BSD", "300", "200"),
    ]
    assert counts == {split: len((output / f"{split}.en").read_text().splitlines()) for split in SPLITS}


TEXT_FORM = r"""
msgid ""
msgstr "Content-Type: text/plain; charset=UTF-8\n"

#: views.py:12
msgctxt "menu"
msgid "Save the \"file\""
msgstr ""
"Die \"Datei\" "
"sichern"

#,fuzzy, python-format
#| msgid "Old text"
msgid "Unsure text"
msgstr "Unsicherer Text"

msgid "one file"
msgid_plural "many files"
msgstr[0] "eine Datei"
msgstr[1] "viele Dateien"

msgid "Not yet done"
msgstr ""

#. Default: "Your name, "
#. "please"
msgid "label_name"
msgstr "Ihr Name, bitte"

#~msgid "Obsolete text"
#~msgstr "Alter Text"
"""


def test_text_form() -> None:
    expected = [('Save the "file"', 'Die "Datei" sichern'), ("Not yet done", ""), ("label_name", "Ihr Name, bitte")]
    for text in (TEXT_FORM, TEXT_FORM.replace("\n", "\r\n")):
        assert [(entry.msgid, entry.msgstr) for entry in read_po(text)] == expected


def test_english_of_symbols_and_compiled_form_before_text_form(tmp_path: Path) -> None:
    files = {
        "a/locale/de/LC_MESSAGES/app.mo": compile_mo({"say_hello": "Guten Tag", "My color": "Meine Farbe"}),
        "a/locale/en/LC_MESSAGES/app.mo": compile_mo({"say_hello": "Good day"}),
        "a/locale/en_GB/LC_MESSAGES/app.mo": compile_mo({"say_hello": "Hullo", "My color": "My colour"}),
        "a/locale/de/LC_MESSAGES/both.mo": compile_mo({"label_name": "Name"}),
        "a/locale/de/LC_MESSAGES/both.po": TEXT_FORM,
        "a/locale/de/LC_MESSAGES/text.po": TEXT_FORM,
    }
    assert set(read_wheel(make_wheel(tmp_path, "symbols", files), "de").messages) == {
        Pair("Good day", "Guten Tag"),
        Pair("My color", "Meine Farbe"),
        Pair("Your name, please", "Name"),
        Pair('Save the "file"', 'Die "Datei" sichern'),
        Pair("Your name, please", "Ihr Name, bitte"),
    }


@pytest.mark.parametrize(
    ("available", "target", "chosen"),
    [
        (("de", "de_DE"), "de", "de"),
        (("de_AT", "de_DE"), "de", "de_DE"),
        (("es_AR", "es_MX"), "es", None),
        (("pt", "pt_BR"), "pt-br", "pt_BR"),
        (("zh_CN",), "zh_Hans", "zh_CN"),
    ],
)
def test_choice_of_language(available: tuple[str, ...], target: str, chosen: str | None) -> None:
    files = catalogue_files([f"app/locale/{code}/LC_MESSAGES/django.mo" for code in available])
    assert choose_language(files, target) == chosen
