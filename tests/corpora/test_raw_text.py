"""Pairs from raw files of every format, and one line for each kind of broken file."""

import gzip
import io
import tarfile
import time
import tracemalloc
import zipfile
from pathlib import Path
from typing import Any

import pytest

from ode_transformer.corpora import raw_text
from ode_transformer.corpora.raw_text import PairLocation, read_pairs
from ode_transformer.support.errors import UserError

# Characters at which other programs end a line; a line of Windows; one that is empty.
ENGLISH = "one\u2028two\x85three\x0bfour\rfive\nsix\r\n\nseven".encode()
GERMAN = b"eins & zwei\nsechs\n\nsieben\n"
PAIRS = [("one\u2028two\x85three\x0bfour\rfive", "eins & zwei"), ("six", "sechs"), ("", ""), ("seven", "sieben")]
MEMBERS = {"README": b"?", "training/a.de-en.en": ENGLISH, "training/a.de-en.de": GERMAN, "training/other": b"x" * 999}


def tar(path: Path, members: dict[str, bytes], mode: str = "w", prefix: str = "") -> Path:
    with tarfile.open(path, mode) as archive:
        for name, content in members.items():
            entry = tarfile.TarInfo(prefix + name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return path


def zipped(path: Path, members: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return path


def pairs(path: Path, **location: Any) -> list[tuple[str, str]]:
    return list(read_pairs({"a": path}, PairLocation(file="a", **location)))


SIDES = {"source": "training/a.de-en.en", "target": "training/a.de-en.de"}
COMPRESSED = {name: gzip.compress(content) for name, content in MEMBERS.items()}


@pytest.mark.parametrize(
    "make",
    [
        lambda path: tar(path, MEMBERS),
        lambda path: tar(path, MEMBERS, "w:gz"),
        lambda path: tar(path, MEMBERS, "w:bz2", prefix="./"),
        lambda path: tar(path, dict(reversed(MEMBERS.items())), "w:gz"),
        lambda path: tar(path, COMPRESSED),
        lambda path: zipped(path, MEMBERS),
        lambda path: zipped(path, COMPRESSED),
    ],
    ids=["tar", "tgz", "tar.bz2", "target first", "gz in tar", "zip", "gz in zip"],
)
def test_two_members_of_an_archive(tmp_path: Path, make) -> None:
    assert pairs(make(tmp_path / "archive"), **SIDES) == PAIRS


@pytest.mark.parametrize("compress", [gzip.compress, bytes])
def test_two_files(tmp_path: Path, compress) -> None:
    """Whatever they are called: a user may have decompressed them."""
    (tmp_path / "a.en.gz").write_bytes(compress(ENGLISH))
    (tmp_path / "a.de").write_bytes(compress(GERMAN))
    files = {"en": tmp_path / "a.en.gz", "de": tmp_path / "a.de"}
    location = PairLocation(source_file="en", target_file="de")
    assert location.files == ["en", "de"]
    assert list(read_pairs(files, location)) == PAIRS


def test_no_more_of_an_archive_is_read_than_is_needed(tmp_path: Path) -> None:
    """The rest of this one is missing."""
    path = tar(tmp_path / "a.tgz", MEMBERS | {"last": b"".join(b"%d\n" % number for number in range(99_999))}, "w:gz")
    path.write_bytes(path.read_bytes()[:-2000])
    assert pairs(path, **SIDES) == PAIRS
    with pytest.raises(UserError, match="a.tgz: cannot be read to its end: Compressed file ended"):
        pairs(path, source="training/a.de-en.en", target="last")
    path.unlink()
    with pytest.raises(UserError, match="a.tgz: no such file"):
        pairs(path, **SIDES)


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
    path = tar(tmp_path / "dev.tgz", {"t.en.sgm": NEWSTEST.encode(), "t.de.sgm": NEWSTEST.upper().encode()}, "w:gz")
    sentences = pairs(path, source="t.en.sgm", target="t.en.sgm", format="segments")
    assert [source for source, _ in sentences] == ['A & B <i> – "C" AT&T &copy;', "One", "two", "three  four", ""]
    with pytest.raises(UserError, match="dev.tgz: t.de.sgm: contains no text in this format"):
        pairs(path, source="t.en.sgm", target="t.de.sgm", format="segments")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("<doc>\n<seg id='1'>a\nb\n", 2),
        ("<doc>\n<seg id='1'>a\nb\n<seg id='2'>b</seg>\n", 2),
        ("<seg id='1'>" + "a\n" * 2000 + "</seg>\n", 1),
        ("a\n" + "<seg " * 200_000 + "\n", 2),
        ("a\n" + "<seg>" * 200_000 + "\n", 2),
    ],
    ids=["last", "before another", "over many lines", "start tags without end", "segments without end"],
)
def test_a_segment_without_its_end_is_soon_noticed(tmp_path: Path, text: str, line: int) -> None:
    (tmp_path / "t.sgm").write_text(text)
    start = time.monotonic()
    with pytest.raises(UserError, match=f"t.sgm: line {line}: <seg> without its end"):
        list(read_pairs({"a": tmp_path / "t.sgm"}, PairLocation(source_file="a", target_file="a", format="segments")))
    assert time.monotonic() - start < 5


def test_entities_of_a_segment_make_no_second_line(tmp_path: Path) -> None:
    (tmp_path / "t.sgm").write_text(f"<seg>a&#10;b &#x41;&#{'9' * 5000};</seg>")
    location = PairLocation(source_file="a", target_file="a", format="segments")
    assert list(read_pairs({"a": tmp_path / "t.sgm"}, location))[0][0] == f"a b A&#{'9' * 5000};"


TRAIN = """<url>http://www.ted.com/{0}</url>
<keywords>talks, {0}</keywords>
<speaker>A. B.</speaker>
<talkid>1</talkid>
<title>Title {0}</title>
<description>TED Talk: {0}</description>
 Thank <b> you {0}
<url>http://www.ted.com/2</url>
Next’s {0}
"""


def test_tagged_lines_and_apostrophes(tmp_path: Path) -> None:
    members = {f"de-en/train.tags.de-en.{language}": TRAIN.format(language).encode() for language in ("de", "en")}
    path = tar(tmp_path / "de-en.tgz", members, "w:gz")
    location = {"source": "de-en/train.tags.de-en.de", "target": "de-en/train.tags.de-en.en", "format": "tagged"}
    lines = ["<speaker>A. B.</speaker>", "Title {}", "TED Talk: {}", "Thank <b> you {}", "Next’s {}"]
    expected = [(line.format("de"), line.format("en")) for line in lines]
    assert pairs(path, **location) == expected
    assert pairs(path, **location, straight_apostrophes=True)[-1] == ("Next's de", "Next's en")


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
    path.write_bytes(gzip.compress(TMX.replace("<tmx", '<tmx xmlns="http://www.lisa.org/tmx14"').encode()))
    assert pairs(path, format="tmx", languages=["en", "ro"]) == [("Good & bad", "Bun și rău"), ("Two", "Doi")]
    archive = zipped(tmp_path / "en-ro.zip", {"x/en-ro.tmx": TMX.encode()})
    sentences = pairs(archive, format="tmx", languages=["ro", "en"], member="x/en-ro.tmx")
    assert sentences == [("Bun și rău", "Good & bad"), ("Doi", "Two")]


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (("RO", "bg"), "tmx: unit 2 is not in ro, but in bg, en"),
        (("</body>", ""), "tmx: cannot be read as XML: mismatched tag: line 7"),
        (("Doi", "&doi;"), "tmx: cannot be read as XML: undefined entity"),
        (('"http://127.0.0.1:9/tmx14.dtd">', '"a" [<!ENTITY doi SYSTEM "file:///etc/hostname">]>'), "&doi;"),
        (("și", "\ud800"), "tmx: cannot be read as XML: not well-formed"),
        (('encoding="UTF-8"', 'encoding="no-such"'), "tmx: cannot be read as XML: unknown encoding"),
        (("RO", "x" * 300), rf"tmx: unit 2 is not in ro, but in {'x' * 200}…$"),
        (("<seg>", "<a>" * 100), "tmx: more than 100 elements within each other"),
    ],
)
def test_a_broken_tmx(tmp_path: Path, spoil: tuple[str, str], message: str) -> None:
    text = TMX.replace(*spoil)
    if message == "&doi;":  # an entity that points to a file is no text
        text, message = text.replace("Doi", "&doi;"), "tmx: cannot be read as XML: undefined entity"
    path = tmp_path / "tmx"
    path.write_bytes(text.encode(errors="surrogatepass"))
    with pytest.raises(UserError, match=message):
        pairs(path, format="tmx", languages=["en", "ro"])


def test_a_unit_without_end(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(raw_text, "MAX_UNIT_BYTES", 1 << 18)
    path = tmp_path / "tmx"
    path.write_text(TMX.replace("</seg></tuv></tu>", " more" * 100_000, 1))
    with pytest.raises(UserError, match=r"tmx: no end of a translation unit \(</tu>\) in 262,144 bytes"):
        pairs(path, format="tmx", languages=["en", "ro"])


def test_units_that_were_read_take_no_memory_wherever_they_stand(tmp_path: Path) -> None:
    path, unit = tmp_path / "tmx", TMX[TMX.index("<tu>") : TMX.index("</tu>")] + "</tu>"
    path.write_text(f"<tmx>{f'<header>{unit}</header>' * 20_000}</tmx>")
    location = PairLocation(file="a", format="tmx", languages=["en", "ro"])
    tracemalloc.start()
    try:
        assert sum(1 for _ in read_pairs({"a": path}, location)) == 20_000
        assert tracemalloc.get_traced_memory()[1] < 3_000_000  # all of them together: 21 million bytes
    finally:
        tracemalloc.stop()


def test_columns_of_several_members(tmp_path: Path) -> None:
    rows = {f"data/{number:02}train.gz": f"id\t0.1\tcs {number}\ten {number}\n" for number in range(2)}
    members = {name: gzip.compress(text.encode()) for name, text in rows.items()}
    path = tar(tmp_path / "czeng.tar", members | {"data/00test.gz": gzip.compress(b"x")})
    location = {"format": "tsv", "columns": [4, 3]}
    assert pairs(path, **location, member="data/??train.gz") == [("en 0", "cs 0"), ("en 1", "cs 1")]
    with pytest.raises(UserError, match="czeng.tar: data/00test.gz: line 1 has 1 columns, but column 4 is needed"):
        pairs(path, **location, member="data/*")


def test_members_of_a_pattern_stand_beside_their_counterparts(tmp_path: Path) -> None:
    texts = {f"c/{part}.{side}": f"{part} {side}\n".encode() for part in "ab" for side in ("en", "de")}
    location = {"source": "c/*.en", "target": "c/*.de"}
    assert pairs(tar(tmp_path / "a.tar", texts), **location) == [("a en", "a de"), ("b en", "b de")]
    crossed = {name: texts[name] for name in ("c/a.en", "c/b.en", "c/b.de", "c/a.de")}
    with pytest.raises(
        UserError, match=r"b\.tar: c/a\.en stands beside .*b\.tar: c/b\.de: name the members one by one"
    ):
        pairs(tar(tmp_path / "b.tar", crossed), **location)
    for form in ("./c/*.{}", "c/[ab].{}", "c/[!x]*.{}"):
        with pytest.raises(UserError, match="name the members one by one"):
            pairs(tmp_path / "b.tar", source=form.format("en"), target=form.format("de"))
    with pytest.raises(UserError, match=r"sides of different length: .*c/a\.en has 1, .*c/a\.de has 2"):
        pairs(tar(tmp_path / "c.tar", texts | {"c/a.de": b"1\n2\n", "c/b.en": b"1\n2\n"}), **location)
    del texts["c/b.de"]
    with pytest.raises(UserError, match=r"c/b\.en: the other side has fewer members"):
        pairs(tar(tmp_path / "d.tar", texts), **location)


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ({"en": b"a\nb\nc\n", "de": b"a\n"}, "sides of different length: {0}: en has 3, {0}: de has 1$"),
        ({"en": b"a", "de": b"a\nb\nc\nd"}, "sides of different length: {0}: en has 1, {0}: de has 4$"),
        ({"en": b"a\n", "de": b"\xc3\xa4\n\xe4\n"}, "{0}: de: line 2 is not UTF-8: byte 1 of it is 0xe4"),
        ({"en": b"a\n", "a.de": b"a"}, "{0}: no de in it; there is a.de, en"),
        ({"en": b"a\n", "de": b""}, "{0}: de: contains no text in this format"),
        ({}, "{0}: no en in it; there is nothing"),
        (
            {"en": b"a\n", "de": gzip.compress(bytes(9999))[:-9]},
            "{0}: cannot be read to its end: Compressed file ended",
        ),
        ({"en": b"a\n", "de": gzip.compress(b"a\n" * 99)[:-6] + b"\0" * 6}, "{0}: cannot be read to its end: CRC"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(tmp_path: Path, members: dict[str, bytes], message: str) -> None:
    path = tar(tmp_path / "archive.tgz", members, "w:gz")
    with pytest.raises(UserError, match=message.format(path)) as error:
        pairs(path, source="en", target="de")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("location", "message"),
    [
        ({}, "has to have file, or source_file and target_file"),
        ({"source_file": "a"}, "has to have file, or"),
        ({"file": "a", "source_file": "a", "target_file": "b"}, "file as well as"),
        ({"file": "a", "source": "x"}, "has to name source and target"),
        ({"file": "a", "source": "x", "target": "y", "member": "z"}, "member goes with the formats tmx and tsv"),
        ({"file": "a", "source": "x", "target": "y", "languages": ["en", "de"]}, "languages go with"),
        ({"file": "a", "format": "tmx"}, "languages go with"),
        ({"file": "a", "format": "tmx", "languages": ["en"]}, "languages"),
        ({"file": "a", "format": "tmx", "languages": ["en", "de"], "source": "x"}, "both sides in one file"),
        ({"file": "a", "format": "tsv"}, "columns go with"),
        ({"file": "a", "format": "tsv", "columns": [0, 1]}, "greater than 0"),
        ({"file": "a", "format": "xml"}, "format"),
        ({"file": "a", "source": "x", "target": "y", "lower": True}, "Extra inputs"),
    ],
)
def test_a_location_that_makes_no_sense(location: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        PairLocation.model_validate(location)


def test_an_empty_file_is_called_empty(tmp_path: Path) -> None:
    files = {side: tmp_path / f"text.{side}" for side in ("en", "de")}
    for file in files.values():
        file.touch()
    with pytest.raises(UserError, match="text.en: is empty"):
        list(read_pairs(files, PairLocation(source_file="en", target_file="de")))
