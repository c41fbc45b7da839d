"""Small raw files for any recipe of parallel text, in the layout of the published ones.

Names, formats and languages come from the recipe and the source list, so every new recipe has its files at once.
Sentences are combined from phrases that mean the same in every language.
"""

import gzip
import html
import random
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain, product
from pathlib import Path

import yaml
from summarisation_stand_in import pack

from ode_transformer.lab.corpora.corpus import fairseq_test_split
from ode_transformer.lab.corpora.download import read_sources
from ode_transformer.lab.corpora.parallel_corpus import ParallelCorpus
from ode_transformer.lab.corpora.raw_text import PairLocation
from ode_transformer.lab.recipes.recipe import Recipe

Pair = tuple[str, str]

# Subjects, predicates and adverbials by language.
PHRASES = yaml.safe_load(Path(__file__).with_name("phrases.yaml").read_text(encoding="utf-8"))
MEANINGS = list(product(*(range(len(phrases)) for phrases in PHRASES["en"])))
TRAINING, OTHERS = 40, 5  # lines of a file
FILTERED_AT = 5  # line of the first training file before which pairs are inserted that the recipe filters out
TALK = 12  # lines of a talk in IWSLT's training text: title, description, sentences


def sentence(language: str, meaning: tuple[int, ...], version: int = 0, tokenised: bool = False) -> str:
    """Return a sentence.

    :param version: order of its phrases, which differs among references
    """
    chosen = zip(PHRASES[language], meaning, strict=True)
    subject, predicate, adverbial = (phrases[number] for phrases, number in chosen)
    orders = [
        f"{subject} {predicate} {adverbial}",
        f"{adverbial}, {subject} {predicate}",
        f"{subject}, {adverbial}, {predicate}",
        f"{predicate}, {subject}, {adverbial}",
    ]
    text = f"{orders[version]}."
    return text.replace(",", " ,").replace(".", " .") if tokenised else text


def pairs_of(corpus: ParallelCorpus, location: PairLocation, count: int, version: int = 0) -> list[Pair]:
    """Return the pairs of a file; files with the same source side have the same sentences."""
    source = f"{location.source_file or location.file} {location.source or location.member}"
    meanings = random.Random(source).sample(MEANINGS, count)
    write = partial(sentence, tokenised=not corpus.text.tokenise)
    return [(write(corpus.source, meaning), write(corpus.target, meaning, version)) for meaning in meanings]


def filtered_pairs(corpus: ParallelCorpus) -> list[Pair]:
    """Return pairs that the recipe filters out, one for each of its rules."""
    keep, (source, target) = corpus.keep, (sentence(side, MEANINGS[0]) for side in corpus.languages)
    if keep is None:
        return []
    by_length = [("", target), (f"{source} " * keep.max, f"{target} " * keep.max)]
    return by_length + ([(source, f"{target} " * int(2 * keep.ratio + 1))] if keep.ratio else [])


def training_lines(corpus: ParallelCorpus) -> int:
    """Return the lines of a training file, so many that at least three pairs are held out."""
    return max(TRAINING, 3 * (corpus.hold_out or 0))


def counts_of(corpus: ParallelCorpus) -> dict[str, int]:
    """Return the lines that preparation must find in each split, and those it must leave out."""
    train = training_lines(corpus) * len(corpus.train)
    valid = train // corpus.hold_out if corpus.hold_out else OTHERS * len(corpus.valid)
    tests = {fairseq_test_split(n): OTHERS * len(locations) for n, locations in enumerate(corpus.test.values())}
    left_out = {"left out": len(filtered_pairs(corpus))} if corpus.keep else {}
    return {"train": train - valid if corpus.hold_out else train, "valid": valid} | tests | left_out


def contents(corpus: ParallelCorpus) -> Iterator[tuple[PairLocation, list[Pair]]]:
    """Yield the location of every text with its pairs."""
    for number, location in enumerate(corpus.train):
        pairs = pairs_of(corpus, location, training_lines(corpus))
        yield location, pairs[:FILTERED_AT] + (filtered_pairs(corpus) if number == 0 else []) + pairs[FILTERED_AT:]
    for location in chain(corpus.valid, *corpus.test.values()):
        yield location, pairs_of(corpus, location, OTHERS)
    for locations in corpus.references.values():
        for version, location in enumerate(locations, start=1):
            yield location, pairs_of(corpus, location, OTHERS, version)


def texts_of(corpus: ParallelCorpus) -> dict[str, dict[str | None, str]]:
    """Return the text of every member by source and name; the name is None if the file is no archive."""
    texts: defaultdict[str, dict[str | None, str]] = defaultdict(dict)
    for location, pairs in contents(corpus):
        for file, member, text_of in texts_at(location):
            names = members_for(member)
            for number, name in enumerate(names):
                texts[file][name] = text_of(pairs[number :: len(names)])
    return texts


def texts_at(location: PairLocation) -> list[tuple[str | None, str | None, Callable[[list[Pair]], str]]]:
    """Return source, member and writer of each text of a location."""
    if location.format == "tmx":
        return [(location.file, location.member, partial(tmx, location.languages))]
    if location.format == "tsv":
        return [(location.file, location.member, partial(table, location.columns))]
    files = location.source_file or location.file, location.target_file or location.file
    sides = zip(files, (location.source, location.target), strict=True)
    return [(*side, partial(one_side, location.format, number)) for number, side in enumerate(sides)]


def one_side(format: str, side: int, pairs: list[Pair]) -> str:
    return {"lines": lines, "segments": segments, "tagged": tagged}[format]([pair[side] for pair in pairs])


def members_for(pattern: str | None) -> list[str | None]:
    """Return two members for a pattern, otherwise the name itself."""
    if pattern is None or not set("*?") & set(pattern):
        return [pattern]
    return [pattern.replace("*", digit).replace("?", digit) for digit in "01"]


def lines(texts: list[str]) -> str:
    return "".join(f"{text}\n" for text in texts)


def segments(texts: list[str]) -> str:
    """Return sentences as in WMT's .sgm and IWSLT's .xml files."""
    head = ['<?xml version="1.0" encoding="UTF-8"?>', "<mteval>", '<srcset setid="set" srclang="any">']
    head += ['<doc docid="1" genre="talk">', "<url>http://talks.example/1</url>", "<title>No sentence</title>", "<p>"]
    body = [f'<seg id="{n}"> {html.escape(text, quote=False)} </seg>' for n, text in enumerate(texts, start=1)]
    return lines([*head, *body, "</p>", "</doc>", "</srcset>", "</mteval>"])


def tagged(texts: list[str]) -> str:
    """Return sentences as in IWSLT's train.tags files, where titles and descriptions count, too."""
    written_lines = []
    for number, text in enumerate(texts):
        if number % TALK == 0:
            written_lines += [f"<url>http://talks.example/{number}</url>", "<keywords>talks, bread</keywords>"]
            written_lines += [f"<talkid>{number}</talkid>", f"<title>{text}</title>"]
        else:
            written_lines.append(f"<description>TED Talk: {text}</description>" if number % TALK == 1 else f"{text} ")
    return lines(written_lines)


def tmx(languages: list[str], pairs: list[Pair]) -> str:
    head = ['<?xml version="1.0" encoding="UTF-8" ?>', '<tmx version="1.4">', '<header srclang="en"/>', "<body>"]
    units = []
    for pair in pairs:
        sides = zip(languages, map(html.escape, pair), strict=True)
        units += ["<tu>", *(f'<tuv xml:lang="{side}"><seg>{text}</seg></tuv>' for side, text in sides), "</tu>"]
    return lines([*head, *units, "</body>", "</tmx>"])


def table(columns: list[int], pairs: list[Pair]) -> str:
    written_lines = []
    for number, pair in enumerate(pairs):
        fields = [f"block-{number}", *["0.5"] * max(columns)]
        for column, text in zip(columns, pair, strict=True):
            fields[column - 1] = text
        written_lines.append("\t".join(fields))
    return lines(written_lines)


def write_raw(recipe: Recipe, folder: Path) -> dict[str, Path]:
    """Write the raw files of a recipe; return their paths by their names in the source list."""
    sources, files = read_sources(), {}
    for name, members in texts_of(recipe.corpus).items():
        path = files[name] = folder / sources[name].file
        path.parent.mkdir(parents=True, exist_ok=True)
        if None in members:
            path.write_bytes(packed(path.name, members[None]))
            continue
        texts = {"README": "not to be read", **members}
        pack(path, {member: packed(member, text) for member, text in texts.items()})
    return files


def packed(name: str, text: str) -> bytes:
    """Return the content of a file with this name, compressed if the name says so."""
    return gzip.compress(text.encode(), mtime=0) if name.endswith("gz") else text.encode()
