"""Small raw files for any recipe of parallel text, in the layout of the published ones.

Names, formats and languages are those of the recipe's own parts and of the catalogue, so that a new recipe has its
stand-in at once. The sentences are put together from phrases that mean the same in every language.
"""

from __future__ import annotations

import gzip
import html
import io
import random
import tarfile
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain, product
from pathlib import Path

from ode_transformer.corpora.corpus import test_split_name
from ode_transformer.corpora.parallel_corpus import ParallelCorpus
from ode_transformer.corpora.raw_text import Pair, PairLocation
from ode_transformer.corpora.sources import read_sources
from ode_transformer.recipes.recipe import Recipe

# language -> who, does what, when or where
PHRASES = {
    "en": (
        ["The old teacher", "My sister", "The farmer", "Our neighbour", "A young doctor", "The firm Smith & Sons"],
        ["buys fresh bread", "reads the mayor’s letter", "waits for the train", "sells two horses"],
        ["in the morning", "on Friday", "before lunch", "in the old town", "despite the rain", "every summer"],
    ),
    "de": (
        [
            "Der alte Lehrer",
            "Meine Schwester",
            "Der Bauer",
            "Unser Nachbar",
            "Eine junge Ärztin",
            "Firma Schmidt & Co",
        ],
        ["kauft frisches Brot", "liest Bürgermeister Kohls Brief", "wartet auf den Zug", "verkauft zwei Pferde"],
        ["am frühen Morgen", "am Freitag", "vor dem Essen", "in der Altstadt", "trotz des Regens", "jeden Sommer"],
    ),
    "fr": (
        ["Le vieux professeur", "Ma sœur", "Le paysan", "Notre voisin", "Un jeune médecin", "La maison Martin & Fils"],
        ["achète du pain frais", "lit la lettre du maire", "attend l’arrivée du train", "vend deux chevaux"],
        ["le matin", "le vendredi", "avant le déjeuner", "dans la vieille ville", "malgré la pluie", "chaque été"],
    ),
    "ro": (
        ["Bătrânul profesor", "Sora mea", "Ţăranul", "Vecinul nostru", "O doctoriţă tânără", "Firma Ionescu & Fiii"],
        ["cumpără pâine proaspătă", "citeşte scrisoarea primarului", "aşteaptă trenul", "vinde doi cai"],
        ["dimineaţa", "vineri", "înainte de prânz", "în oraşul vechi", "în ciuda ploii", "în fiecare vară"],
    ),
    "cs": (
        ["Starý učitel", "Moje sestra", "Sedlák", "Náš soused", "Mladá lékařka", "Firma Novák & synové"],
        ["kupuje čerstvý chléb", "čte starostův dopis", "čeká na vlak", "prodává dva koně"],
        ["ráno", "v pátek", "před obědem", "ve starém městě", "navzdory dešti", "každé léto"],
    ),
    "vi": (
        ["Thầy giáo già", "Chị tôi", "Người nông dân", "Hàng xóm tôi", "Một bác sĩ trẻ", "Công ty Minh & Con"],
        ["mua bánh mì tươi", "đọc thư của thị trưởng", "đợi tàu hỏa", "bán hai con ngựa"],
        ["vào buổi sáng", "vào thứ sáu", "trước bữa trưa", "trong phố cổ", "dù trời mưa", "vào mỗi mùa hè"],
    ),
    "zh": (  # divided into words
        ["老 教师", "我 姐姐", "那 个 农民", "我们 的 邻居", "一 位 年轻 医生", "王 & 李 公司"],
        ["买 新鲜 的 面包", "读 市长 的 信", "等 他 的 火车", "卖 两 匹 马"],
        ["在 早上", "在 星期五", "在 午饭 前", "在 老城", "冒 着 雨", "每年 夏天"],
    ),
}
MEANINGS = list(product(*(range(len(phrases)) for phrases in PHRASES["en"])))
TRAINING, OTHERS = 40, 5  # lines of a part
SPOILT_AT = 5  # the line of the first training part before which the pairs come that are not to be kept
TALK = 12  # lines of a talk in IWSLT's training text; the first is its title, the second its description


def sentence(language: str, meaning: tuple[int, ...], version: int = 0, tokenised: bool = False) -> str:
    """
    :param version: the same in the same words, but in another order: as further references are
    """
    who, what, when = (phrases[number] for phrases, number in zip(PHRASES[language], meaning, strict=True))
    orders = [f"{who} {what} {when}", f"{when}, {who} {what}", f"{who}, {when}, {what}", f"{what}, {who}, {when}"]
    text = f"{orders[version]}."
    return text.replace(",", " ,").replace(".", " .") if tokenised else text


def pairs_of(corpus: ParallelCorpus, part: PairLocation, count: int, version: int = 0) -> list[Pair]:
    """The pairs of a part; parts with the same source side have the same sentences."""
    source = f"{part.source_file or part.file} {part.source or part.member}"
    meanings = random.Random(source).sample(MEANINGS, count)
    tokenised = not corpus.text.tokenise
    return [
        (sentence(corpus.source, m, 0, tokenised), sentence(corpus.target, m, version, tokenised)) for m in meanings
    ]


def spoilt(corpus: ParallelCorpus) -> list[Pair]:
    """Pairs that the recipe does not keep, one for each of its rules."""
    keep, (source, target) = corpus.keep, (sentence(side, MEANINGS[0]) for side in corpus.languages)
    if keep is None:
        return []
    made = [("", target), (f"{source} " * keep.max, f"{target} " * keep.max)]
    return made + [(source, f"{target} " * 4)] * (keep.ratio is not None)


def training_lines(corpus: ParallelCorpus) -> int:
    """Of a part; text that is held out has three pairs at least."""
    return max(TRAINING, 3 * (corpus.hold_out or 0))


def counts_of(corpus: ParallelCorpus) -> dict[str, int]:
    """Lines that preparation has to find in these files, to keep and to leave out."""
    train = training_lines(corpus) * len(corpus.train)
    valid = train // corpus.hold_out if corpus.hold_out else OTHERS * len(corpus.valid)
    tests = {test_split_name(number): OTHERS * len(parts) for number, parts in enumerate(corpus.test.values())}
    left_out = {"left out": len(spoilt(corpus))} if corpus.keep else {}
    return {"train": train - valid if corpus.hold_out else train, "valid": valid} | tests | left_out


def contents(corpus: ParallelCorpus) -> Iterator[tuple[PairLocation, list[Pair]]]:
    """Every part with its pairs."""
    for number, part in enumerate(corpus.train):
        pairs = pairs_of(corpus, part, training_lines(corpus))
        yield part, pairs[:SPOILT_AT] + (spoilt(corpus) if number == 0 else []) + pairs[SPOILT_AT:]
    for part in chain(corpus.valid, *corpus.test.values()):
        yield part, pairs_of(corpus, part, OTHERS)
    for parts in corpus.references.values():
        for version, part in enumerate(parts, start=1):
            yield part, pairs_of(corpus, part, OTHERS, version)


def texts_of(corpus: ParallelCorpus) -> dict[str, dict[str | None, str]]:
    """Name of a source -> its members, or None for a file that is no archive -> text."""
    texts: defaultdict[str, dict[str | None, str]] = defaultdict(dict)
    for part, pairs in contents(corpus):
        for file, member, text_of in places(part):
            names = named(member)
            for number, name in enumerate(names):
                texts[file][name] = text_of(pairs[number :: len(names)])
    return texts


def places(part: PairLocation) -> list[tuple[str | None, str | None, Callable[[list[Pair]], str]]]:
    """The texts of a part: source, member, and how its pairs are written there."""
    if part.format == "tmx":
        return [(part.file, part.member, partial(tmx, part.languages))]
    if part.format == "tsv":
        return [(part.file, part.member, partial(table, part.columns))]
    sides = (part.source_file or part.file, part.source), (part.target_file or part.file, part.target)
    return [(*place, partial(one_side, part.format, number)) for number, place in enumerate(sides)]


def one_side(format: str, side: int, pairs: list[Pair]) -> str:
    return {"lines": lines, "segments": segments, "tagged": tagged}[format]([pair[side] for pair in pairs])


def named(pattern: str | None) -> list[str | None]:
    """Two members for a name that may stand for several."""
    if pattern is None or not set("*?") & set(pattern):
        return [pattern]
    return [pattern.replace("*", digit).replace("?", digit) for digit in "01"]


def lines(texts: list[str]) -> str:
    return "".join(f"{text}\n" for text in texts)


def segments(texts: list[str]) -> str:
    """As in WMT's .sgm and IWSLT's .xml files."""
    head = ['<?xml version="1.0" encoding="UTF-8"?>', "<mteval>", '<srcset setid="set" srclang="any">']
    head += ['<doc docid="1" genre="talk">', "<url>http://talks.example/1</url>", "<title>No sentence</title>", "<p>"]
    body = [f'<seg id="{n}"> {html.escape(text, quote=False)} </seg>' for n, text in enumerate(texts, start=1)]
    return lines([*head, *body, "</p>", "</doc>", "</srcset>", "</mteval>"])


def tagged(texts: list[str]) -> str:
    """As in IWSLT's train.tags files, whose titles and descriptions are sentences, too."""
    made = []
    for number, text in enumerate(texts):
        if number % TALK == 0:
            made += [f"<url>http://talks.example/{number}</url>", "<keywords>talks, bread</keywords>"]
            made += [f"<talkid>{number}</talkid>", f"<title>{text}</title>"]
        else:
            made.append(f"<description>TED Talk: {text}</description>" if number % TALK == 1 else f"{text} ")
    return lines(made)


def tmx(languages: list[str], pairs: list[Pair]) -> str:
    made = ['<?xml version="1.0" encoding="UTF-8" ?>', '<tmx version="1.4">', '<header srclang="en"/>', "<body>"]
    for pair in pairs:
        sides = zip(languages, map(html.escape, pair), strict=True)
        made += ["<tu>", *(f'<tuv xml:lang="{side}"><seg>{text}</seg></tuv>' for side, text in sides), "</tu>"]
    return lines([*made, "</body>", "</tmx>"])


def table(columns: list[int], pairs: list[Pair]) -> str:
    made = []
    for number, pair in enumerate(pairs):
        fields = [f"block-{number}", *["0.5"] * max(columns)]
        for column, text in zip(columns, pair, strict=True):
            fields[column - 1] = text
        made.append("\t".join(fields))
    return lines(made)


def write_raw(recipe: Recipe, folder: Path) -> dict[str, Path]:
    """Writes the raw files of a recipe; returns them by their names in the catalogue."""
    catalogue, files = read_sources(), {}
    for name, members in texts_of(recipe.corpus).items():
        path = files[name] = folder / catalogue[name].file
        path.parent.mkdir(parents=True, exist_ok=True)
        if None in members:
            path.write_bytes(packed(path.name, members[None]))
            continue
        with tarfile.open(path, "w" if path.suffix == ".tar" else "w:gz") as archive:
            for member, text in {"README": "not to be read", **members}.items():
                information = tarfile.TarInfo(member)
                information.size = len(data := packed(member, text))
                archive.addfile(information, io.BytesIO(data))
    return files


def packed(name: str, text: str) -> bytes:
    """As a file of this name has it."""
    return gzip.compress(text.encode(), mtime=0) if name.endswith("gz") else text.encode()
