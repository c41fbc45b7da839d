"""Pairs from raw files of every format."""

import gzip
import io
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest
from summarisation_stand_in import pack

from ode_transformer.lab.corpora.raw_text import PairLocation, read_pairs
from ode_transformer.support.errors import UserError

# Characters at which other programs end a line; a line of Windows; one that is empty.
ENGLISH = "one\u2028two\x85three\x0bfour\rfive\nsix\r\n\nseven".encode()
GERMAN = b"eins & zwei\nsechs\n\nsieben\n"
PAIRS = [("one\u2028two\x85three\x0bfour\rfive", "eins & zwei"), ("six", "sechs"), ("", ""), ("seven", "sieben")]
MEMBERS = {"README": b"?", "training/a.de-en.en": ENGLISH, "training/a.de-en.de": GERMAN, "training/other": b"x" * 999}


def zipped(path: Path, members: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return path


def pairs(path: Path, **location: Any) -> list[tuple[str, str]]:
    return list(read_pairs({"a": path}, PairLocation(file="a", **location)))


SIDES = {"source": "training/a.de-en.en", "target": "training/a.de-en.de"}


@pytest.mark.parametrize(
    "make",
    [
        lambda path: pack(path.with_suffix(".bz2"), {f"./{name}": content for name, content in MEMBERS.items()}),
        lambda path: pack(path, dict(reversed(MEMBERS.items()))),
        lambda path: zipped(path, {name: gzip.compress(content) for name, content in MEMBERS.items()}),
    ],
    ids=["tar.bz2", "target first", "gz in zip"],
)
def test_two_members_of_an_archive(tmp_path: Path, make) -> None:
    assert pairs(make(tmp_path / "archive"), **SIDES) == PAIRS


NEWSTEST = """<srcset setid="newstest2013" srclang="any">
<doc sysid="ref" docid="x" genre="news">
<hl>
<seg id="1">A &amp; B &lt;i&gt; &#8211; &quot;C&quot; AT&T &copy; </seg>
</hl>
<p>
<seg id="2">One</seg> <seg id="3">two</seg>
<seg id="4"> three

four </seg>
<seg id="5"></seg>
</p></doc></srcset>
"""


def test_segments(tmp_path: Path) -> None:
    path = pack(tmp_path / "dev.tgz", {"t.en.sgm": NEWSTEST, "t.de.sgm": NEWSTEST.upper()})
    sentences = pairs(path, source="t.en.sgm", target="t.en.sgm", format="segments")
    assert [source for source, _ in sentences] == ['A & B <i> – "C" AT&T &copy;', "One", "two", "three  four", ""]
    with pytest.raises(UserError, match="dev.tgz: no text of the format segments"):
        pairs(path, source="t.de.sgm", target="t.de.sgm", format="segments")
    pack(path, {"t.en.sgm": NEWSTEST.replace("</seg>\n</p>", "")})
    with pytest.raises(UserError, match="dev.tgz: t.en.sgm: its last <seg> has no end"):
        pairs(path, source="t.en.sgm", target="t.en.sgm", format="segments")


TMX = """<?xml version="1.0" encoding="UTF-8" ?>
<!DOCTYPE tmx SYSTEM "http://127.0.0.1:9/tmx14.dtd">
<tmx version="1.4"><header srclang="en"/><body>
<tu><tuv xml:lang="en"><seg>Good &amp; bad</seg></tuv><tuv xml:lang="ro"><seg>Bun și
rău</seg></tuv></tu>
<tu><tuv xml:lang="RO"><seg> Doi </seg></tuv><tuv lang="en"><seg>T<hi>w</hi>o</seg></tuv></tu>
</body></tmx>
"""


def test_tmx(tmp_path: Path) -> None:
    path = tmp_path / "en-ro.tmx.gz"
    path.write_bytes(gzip.compress(TMX.encode()))
    assert pairs(path, format="tmx", languages=["en", "ro"]) == [("Good & bad", "Bun și rău"), ("Two", "Doi")]
    archive = zipped(tmp_path / "en-ro.zip", {"x/en-ro.tmx": TMX.encode()})
    sentences = pairs(archive, format="tmx", languages=["ro", "en"], member="x/en-ro.tmx")
    assert sentences == [("Bun și rău", "Good & bad"), ("Doi", "Two")]
    # an entity that points to a file is no text
    declared = TMX.replace('"http://127.0.0.1:9/tmx14.dtd">', '"a" [<!ENTITY doi SYSTEM "file:///etc/hostname">]>')
    path.write_text(declared.replace("Doi", "&doi;"))
    with pytest.raises(UserError, match="undefined entity"):
        pairs(path, format="tmx", languages=["en", "ro"])


def test_members_of_a_pattern_stand_beside_their_counterparts(tmp_path: Path) -> None:
    texts = {f"c/{part}.{side}": f"{part} {side}\n".encode() for part in "ab" for side in ("en", "de")}
    location = {"source": "./c/*.en", "target": "c/[!x].de"}
    assert pairs(pack(tmp_path / "a.tar", texts), **location) == [("a en", "a de"), ("b en", "b de")]
    with pytest.raises(UserError, match=r"sides of different length: .*c/a\.en and .*c/a\.de"):
        pairs(pack(tmp_path / "c.tar", texts | {"c/a.de": b"1\n2\n", "c/b.en": b"1\n2\n"}), **location)
    with pytest.raises(UserError, match=r"no c/\*\.fr in it; there is c/"):
        pairs(tmp_path / "a.tar", source="c/*.en", target="c/*.fr")
    swapped = dict(sorted(texts.items(), key=lambda item: item[0].endswith("de") ^ ("b" in item[0])))
    with pytest.raises(UserError, match="stands beside"):
        pairs(pack(tmp_path / "e.tar", swapped), source="c/*.en", target="c/*.de")


def test_links_are_skipped_and_names_are_no_paths(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        link = tarfile.TarInfo("text")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)
        entry = tarfile.TarInfo("../other")
        entry.size = 4
        archive.addfile(entry, io.BytesIO(b"here"))
    assert pairs(tmp_path / "a.tar", source="*other", target="../other") == [("here", "here")]
    with pytest.raises(UserError, match="no text in it"):
        pairs(tmp_path / "a.tar", source="text", target="../other")
