"""CNN/DailyMail: from stories and lists to a corpus."""

import tarfile
from pathlib import Path

import pytest
from summarisation_stand_in import SPLITS, pack, write_raw

from ode_transformer.lab.corpora.summarisation_corpus import SOURCES, SummarisationCorpus, story_name
from ode_transformer.lab.recipes.options import find_recipe
from ode_transformer.lab.recipes.recipe import read_recipe
from ode_transformer.support.errors import UserError
from ode_transformer.support.lines import read_lines

STORY = """MADRID, Spain (CNN) -- Mr. Ruiz didn't  win.  He lost "badly."

By A. Reporter

@highlight

Ruiz loses the vote
@highlight
It's over."""


def test_a_story_by_hand() -> None:
    source, target = SummarisationCorpus().source_and_target(STORY.split("\n"))
    assert source == ('madrid , spain ( cnn ) -- mr. ruiz didn \'t win . he lost " badly . " by a. reporter .')
    assert target == "ruiz loses the vote . it 's over ."


@pytest.mark.parametrize(
    ("highlights", "target"),
    [
        # No full stop after a quotation mark, whatever its kind; hyphens within words stay, brackets are escaped.
        (['She calls it a "no-go zone"', "More soon"], "She calls it a &quot; no-go zone &quot; More soon ."),
        (["It is a ‘big deal’", "A [sic] & B"], "It is a ‘ big deal ’ A &#91; sic &#93; &amp; B ."),
        # The last apostrophe of the text stays at its word, that of a line before does not.
        (["He is 'in'", "She is 'out'"], "He is &apos; in &apos; She is &apos; out&apos;"),
        # Lines are joined first: an abbreviation keeps its added full stop, the last word of all does not.
        (["Ask Mr", "At 7 a.m."], "Ask Mr. At 7 a.m ."),
    ],
)
def test_traps_as_in_the_released_references(highlights: list[str], target: str) -> None:
    corpus = read_recipe(find_recipe("cnn_dm")).corpus
    story = ["Text.", *(line for highlight in highlights for line in ("@highlight", "", highlight))]
    assert corpus.source_and_target(story) == ("Text .", target)


@pytest.fixture
def raw(tmp_path: Path) -> dict[str, Path]:
    return write_raw(tmp_path)


def corpus(folder: Path) -> dict[str, list[str]]:
    return {path.name: read_lines(path) for path in folder.iterdir()}


def test_the_corpus(raw: dict[str, Path], tmp_path: Path) -> None:
    assert set(raw) == set(SOURCES)
    output = tmp_path / "corpus"
    counts = SummarisationCorpus().build(raw, output, 1)
    assert counts == {"train": SPLITS["train"] - 1, "valid": SPLITS["val"], "test": SPLITS["test"], "left out": 1}
    texts = corpus(output)
    assert set(texts) == {f"{split}.{side}" for split in ("train", "valid", "test") for side in ("source", "target")}
    for split in ("train", "valid", "test"):
        sources, targets = texts[f"{split}.source"], texts[f"{split}.target"]
        assert len(sources) == len(targets) == counts[split]
        for source, target in zip(sources, targets, strict=True):
            first, second, *_ = target.split(" . ")
            assert f"{first} {second.removeprefix('it happened ')}" in source
            assert " photo : the square at noon ." in source
    with raw["cnn_dm_val_urls"].open("a") as file:
        file.write("http://news.example/never.html\n")
    with pytest.raises(UserError, match=r"all_val.txt: [0-9a-f]{40}.story is in none of the archives"):
        SummarisationCorpus().build(raw, tmp_path / "other", 1)
    assert not (tmp_path / "other").exists()


def test_neither_packing_nor_workers_change_the_corpus(raw: dict[str, Path], tmp_path: Path) -> None:
    SummarisationCorpus(lowercase=False).build(raw, tmp_path / "one", 1)
    for name in ("cnn_stories", "dailymail_stories"):
        with tarfile.open(raw[name]) as archive:
            members = [(member.name, archive.extractfile(member).read()) for member in archive]
        stranger = (f"cnn/stories/{story_name('http://elsewhere')}", b"In no list.\n")
        pack(raw[name], dict([stranger, *reversed(members), ("cnn/stories/README", b"\xff")]))
    SummarisationCorpus(lowercase=False).build(raw, tmp_path / "other", 2)
    assert corpus(tmp_path / "one") == corpus(tmp_path / "other")
