"""Messages of wheels: which are read, and in which language."""

from pathlib import Path

import pytest
from tiny_wheels import compile_mo, make_wheel

from ode_transformer.corpora.catalogue_files import catalogue_files, choose_language, read_mo, read_po, read_wheel
from ode_transformer.corpora.wheel_corpus import Pair

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


@pytest.mark.parametrize(
    ("rule", "singular"), [("nplurals=2; plural=(n != 1);", "erste"), ("nplurals=2; plural=(n == 1);", "zweite")]
)
def test_plural_entry_gives_the_singular(rule: str, singular: str) -> None:
    data = compile_mo({"a file\0files": "erste\0zweite"}, f"Content-Type: x; charset=UTF-8\nPlural-Forms: {rule}\n")
    assert list(read_mo(data)) == [("a file", singular)]


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
        (("de_AT",), "de", "de_AT"),
        (("es_AR", "es_MX"), "es", None),
        (("pt", "pt_BR"), "pt-br", "pt_BR"),
        (("zh_CN",), "zh_Hans", "zh_CN"),
    ],
)
def test_choice_of_language(available: tuple[str, ...], target: str, chosen: str | None) -> None:
    files = catalogue_files([f"app/locale/{code}/LC_MESSAGES/django.mo" for code in available])
    assert choose_language(files, target) == chosen
