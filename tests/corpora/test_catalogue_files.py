"""Messages of wheels: which are read, in which language, and what is wrong with a damaged wheel."""

import struct
import zipfile
from email.parser import HeaderParser
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiny_wheels import compile_mo, make_wheel

from ode_transformer.corpora.catalogue_files import (
    MAX_CATALOGUE_BYTES,
    Message,
    catalogue_files,
    choose_language,
    default_text,
    licence_of,
    read_mo,
    read_po,
    read_wheel,
)
from ode_transformer.support.errors import UserError

TEXT_FORM = r"""
msgid ""
msgstr "Content-Type: text/plain; charset=UTF-8\n"

#: views.py:12
msgctxt "menu"
msgid "Save the \"file\""
msgstr ""
"Die \"Datei\" "
"sichern"

#, fuzzy, python-format
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

#~ msgid "Obsolete text"
#~ msgstr "Alter Text"
"""


def languages(*codes: str) -> dict[str, dict[str, set[str]]]:
    return catalogue_files([f"app/locale/{code}/LC_MESSAGES/django.mo" for code in codes])


@given(
    st.dictionaries(
        st.text(alphabet="abc äß漢 \n", min_size=1), st.text(alphabet="xyz öü字 \n", min_size=1), max_size=20
    )
)
def test_compiled_catalogue_gives_back_its_messages(messages: dict[str, str]) -> None:
    assert dict(read_mo(compile_mo(messages))) == messages


def test_context_is_removed_and_both_meanings_stay() -> None:
    data = compile_mo({"verb\x04Save it": "Sichern", "noun\x04Save it": "Sicherung", "Save it": "Retten"})
    assert sorted(read_mo(data)) == [("Save it", "Retten"), ("Save it", "Sichern"), ("Save it", "Sicherung")]


@pytest.mark.parametrize(
    ("rule", "singular"),
    [("nplurals=2; plural=(n != 1);", "erste"), ("nplurals=2; plural=(n == 1);", "zweite")],
)
def test_plural_entry_gives_the_singular(rule: str, singular: str) -> None:
    data = compile_mo({"a file\0files": "erste\0zweite"}, f"Content-Type: x; charset=UTF-8\nPlural-Forms: {rule}\n")
    assert list(read_mo(data)) == [("a file", singular)]


def test_text_form() -> None:
    expected = [('Save the "file"', 'Die "Datei" sichern'), ("Not yet done", ""), ("label_name", "Ihr Name, bitte")]
    for text in (TEXT_FORM, TEXT_FORM.replace("\n", "\r\n")):
        assert [(entry.msgid, entry.msgstr) for entry in read_po(text)] == expected


def test_comments_need_no_space() -> None:
    text = '#,fuzzy\nmsgid "A"\nmsgstr "a"\n\n#.Default: "x"\n#:file\n#~msgid "B"\n#note\nmsgid "C"\nmsgstr "c"\n'
    assert [(entry.msgid, entry.msgstr) for entry in read_po(text)] == [("C", "c")]


def test_a_text_is_never_taken_for_a_path(tmp_path: Path) -> None:
    (tmp_path / "secret.po").write_text(TEXT_FORM)
    with pytest.raises(OSError, match=r"Syntax error in po file \(line 1\)"):
        read_po(str(tmp_path / "secret.po"))


def test_only_a_line_feed_ends_a_line() -> None:
    assert read_po('msgid "a\u2028b\x85c"\nmsgstr "d\x0be"\n')[0].msgid == "a\u2028b\x85c"


def test_english_of_a_symbol_in_a_comment() -> None:
    assert {entry.msgid: default_text(entry) for entry in read_po(TEXT_FORM)}["label_name"] == "Your name, please"


def test_english_of_a_symbol_in_a_catalogue_beside_it(tmp_path: Path) -> None:
    wheel = make_wheel(
        tmp_path,
        "symbols",
        {
            "app/locale/de/LC_MESSAGES/app.mo": compile_mo({"say_hello": "Guten Tag", "My color": "Meine Farbe"}),
            "app/locale/en/LC_MESSAGES/app.mo": compile_mo({"say_hello": "Good day"}),
            "app/locale/en_GB/LC_MESSAGES/app.mo": compile_mo({"say_hello": "Hullo", "My color": "My colour"}),
            "app/locale/en/LC_MESSAGES/other.mo": compile_mo({"say_hello": "Wrong catalogue"}),
        },
    )
    expected = {Message("Good day", "Guten Tag"), Message("My color", "Meine Farbe")}
    assert set(read_wheel(wheel, "de").messages) == expected


def test_compiled_form_wins_over_text_form(tmp_path: Path) -> None:
    files = {
        "a/locale/de/LC_MESSAGES/both.mo": compile_mo({"label_name": "Name"}),
        "a/locale/de/LC_MESSAGES/both.po": TEXT_FORM,
        "a/locale/de/LC_MESSAGES/text.po": TEXT_FORM,
    }
    assert read_wheel(make_wheel(tmp_path, "forms", files), "de").messages == (
        Message("Your name, please", "Name"),
        Message('Save the "file"', 'Die "Datei" sichern'),
        Message("Your name, please", "Ihr Name, bitte"),
    )


@pytest.mark.parametrize(
    ("available", "target", "chosen"),
    [
        (("de", "de_DE"), "de", "de"),
        (("de_AT", "de_DE"), "de", "de_DE"),
        (("de_AT",), "de", "de_AT"),
        (("cs_CZ",), "cs", "cs_CZ"),
        (("es_AR", "es_MX"), "es", None),
        (("de_Informal",), "de", None),
        (("pt_BR",), "pt", None),
        (("pt", "pt_BR"), "pt-br", "pt_BR"),
        (("zh_CN",), "zh_Hans", "zh_CN"),
        (("fr",), "fr_CA", None),
        (("sr@latin",), "sr@latin", "sr@latin"),
        ((), "de", None),
    ],
)
def test_choice_of_language(available: tuple[str, ...], target: str, chosen: str | None) -> None:
    assert choose_language(languages(*available), target) == chosen


def test_only_catalogues_count() -> None:
    names = ["a/de/LC_MESSAGES/x.mo", "a/de/LC_MESSAGES/x.json", "a/de/x.mo", "a/C/LC_MESSAGES/x.mo", "a/x.po"]
    assert catalogue_files(names) == {"de": {"a/de/LC_MESSAGES/x": {"mo"}}}


@pytest.mark.parametrize(
    ("metadata", "licence"),
    [
        ("License-Expression: BSD-3-Clause\nLicense: long text", "BSD-3-Clause"),
        ("License: see below\nClassifier: License :: OSI Approved :: MIT License", "MIT License"),
        ("License: GPL v2\n and more lines", "GPL v2"),
        ("Classifier: Framework :: Django", "not stated"),
    ],
)
def test_licence(metadata: str, licence: str) -> None:
    assert licence_of(HeaderParser().parsestr(metadata)) == licence


def one_entry(count: int, length: int, offset: int) -> bytes:
    """A compiled catalogue whose table states ``count`` strings, each of this length at this offset."""
    table = struct.pack("<2I", length, offset) * 4
    return struct.pack("<7I", 0x950412DE, 0, count, 28, 28, 0, 0) + table + bytes(200)


MO, PO = "app/locale/de/LC_MESSAGES/app.mo", "app/locale/de/LC_MESSAGES/app.po"
SPOILT = {
    "cut off": (MO, compile_mo({"Good day": "Guten Tag"})[:60], "a message is cut off or overlaps"),
    "no catalogue": (MO, b"no catalogue", "bad magic number"),
    "endless table": (MO, one_entry(2**32 - 1, 1, 0), "4,294,967,295 messages in 260 bytes"),
    "overlapping strings": (MO, one_entry(4, 100, 60), "a message is cut off or overlaps"),
    "unknown character set": (
        MO,
        compile_mo({"A b": "C d"}, "Content-Type: x; charset=none\n"),
        "unknown encoding: none",
    ),
    "plural rule that divides by zero": (
        MO,
        compile_mo(
            {"a file\0files": "eine\0zwei"}, "Content-Type: x; charset=UTF-8\nPlural-Forms: nplurals=2; plural=1/0;"
        ),
        "division",
    ),
    "text without quotation marks": (PO, "msgid Word\nmsgstr Wort\n", "line 1 has no text in quotation marks"),
    "text in another encoding": (PO, 'msgid "A b"\nmsgstr "ä"\n'.encode("latin-1"), "can't decode byte 0xe4"),
    "entry without end": (PO, 'msgid "A b"\n' + 'msgstr "c"\n' + '"d"\n' * 3000, "a message has more than 2,000 lines"),
    "too large": (MO, bytes(MAX_CATALOGUE_BYTES + 1), "16,777,217 bytes, more than 16,777,216"),
}


@pytest.mark.parametrize(("member", "content", "reason"), SPOILT.values(), ids=SPOILT)
def test_damage_names_wheel_and_member_in_one_line(tmp_path: Path, member: str, content, reason: str) -> None:
    wheel = make_wheel(tmp_path, "damaged", {member: content})
    message = f"damaged-1.0-py3-none-any.whl: broken wheel: app/locale/de/LC_MESSAGES/app: .*{reason}"
    with pytest.raises(UserError, match=message) as error:
        read_wheel(wheel, "de")
    assert "\n" not in str(error.value)
    assert read_wheel(wheel, "fr").messages == ()


def test_a_wheel_without_a_name(tmp_path: Path) -> None:
    path = tmp_path / "x-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x-1.0.dist-info/METADATA", "Version: 1.0\n")
    with pytest.raises(UserError, match="x-1.0-py3-none-any.whl: broken wheel: METADATA: .*no Name"):
        read_wheel(path, "de")
