"""Small archives for grammatical error correction, in the layout of the published ones.

Each sentence has one or two mistakes, different ones in each data set; the M2 edits correct them.
"""

import json
import zipfile
from itertools import pairwise
from pathlib import Path

from plain_models import PAIRS
from summarisation_stand_in import pack

from ode_transformer.lab.corpora.gec_corpus import GecCorpus

STATEMENTS = [source.removesuffix(".") for source, _ in PAIRS if source.endswith(".")]
SENTENCES = [f"{first} and {second[0].lower()}{second[1:]} ." for first, second in pairwise(STATEMENTS)][:42]
AGREEMENT = {"is": "are", "are": "is", "was": "were", "were": "was", "has": "have", "have": "has"}
ARTICLES = ("a", "an", "the")


def spoiled(tokens: list[str], shift: int) -> tuple[list[str], list[tuple[int, int, str, str]]]:
    """Return a sentence with mistakes, and the edits (start, end, type, correction) that correct them.

    :param shift: selects the mistakes
    """
    mistaken: list[str] = []
    edits = []
    for number, token in enumerate(tokens):
        position = len(mistaken)
        if (number + shift) % 4:
            mistaken.append(token)
        elif token in ARTICLES:
            edits.append((position, position, "ArtOrDet", token))
        elif token in AGREEMENT:
            mistaken.append(AGREEMENT[token])
            edits.append((position, position + 1, "SVA", token))
        elif token == "of":
            mistaken += [token, "the"] if tokens[number + 1] != "the" else [token, token]
            edits.append((position + 1, position + 2, "ArtOrDet", "-NONE-"))
        elif len(token) > 6:
            mistaken.append(token[:2] + token[3] + token[2] + token[4:])
            if mistaken[-1] != token:
                edits.append((position, position + 1, "Mec", token))
        else:
            mistaken.append(token)
    return mistaken, edits


def block(tokens: list[str], *annotators: list[tuple[int, int, str, str]]) -> str:
    """Return the lines of a sentence in an M2 file."""
    lines = ["S " + " ".join(tokens)]
    for annotator, edits in enumerate(annotators):
        for start, end, kind, correction in edits or [(-1, -1, "noop", "-NONE-")]:
            lines.append(f"A {start} {end}|||{kind}|||{correction}|||REQUIRED|||-NONE-|||{annotator}")
    return "\n".join(lines) + "\n\n"


def m2_text(shift: int, sentences: list[str] = SENTENCES, annotators: int = 1) -> str:
    """Return sentences with mistakes; a second annotator misses the first mistake of each."""
    blocks = []
    for number, sentence in enumerate(sentences):
        tokens, edits = spoiled(sentence.split(), shift + number)
        blocks.append(block(tokens, *(edits, edits[1:])[:annotators]))
    return "".join(blocks)


def lang8_text(shift: int, sentences: list[str] = SENTENCES) -> str:
    """Return sentences with mistakes as entries of raw Lang-8; three other lines give no pair."""
    lines = ["not JSON", json.dumps(["1", "1", "Japanese", "English", ["A day ."], [["The day ."]]])]
    lines.append(json.dumps(["2", "2", "English", "Japanese", ["The teacher reads ."], [[]]]))
    for number in range(0, len(sentences), 6):
        corrected = sentences[number : number + 6]
        mistaken = [" ".join(spoiled(line.split(), shift + number + n)[0]) for n, line in enumerate(corrected)]
        corrections = [[text(good)] if good != bad else [] for good, bad in zip(corrected, mistaken, strict=True)]
        lines.append(json.dumps([f"{number}", "3", "English", "Korean", list(map(text, mistaken)), corrections]))
    return "".join(f"{line}\n" for line in lines)


def text(tokens: str) -> str:
    """Return tokens as text."""
    return tokens.replace(" .", ".").replace(" ,", ",")


def write_punkt(path: Path) -> Path:
    """Write a model of NLTK's Punkt that knows one abbreviation."""
    tables = {"abbrev_types.txt": "mr\n", "collocations.tab": "##number##\talbum\n"}
    tables |= {"sent_starters.txt": "however\n", "ortho_context.tab": "the\t46\n"}
    with zipfile.ZipFile(path, "w") as zipped:
        for name, table in tables.items():
            zipped.writestr(f"punkt_tab/english/{name}", table)
    return path


def counts_of(corpus: GecCorpus) -> dict[str, int]:
    """Return the lines that preparation must find in each split, and those it must leave out."""
    shifts = {"nucle": 0, "nucle_3_2": 0, "lang8": 1, "lang8_raw": 1, "fce": 2, "wi_locness": 3}
    edited = {name: edited_count(shift) for name, shift in shifts.items()}
    train, test = sum(edited[name] for name in corpus.train), 20
    if corpus.valid == "wi_locness":
        return {"train": train, "valid": edited_count(1, SENTENCES[:20]), "test": test}
    valid = edited[corpus.valid] // corpus.valid_every
    left_out = {"left out": len(SENTENCES) * len(corpus.train) - train} if corpus.unedited else {}
    return {"train": train - valid, "valid": valid, "test": test} | left_out


def edited_count(shift: int, sentences: list[str] = SENTENCES) -> int:
    return sum(bool(spoiled(sentence.split(), shift + n)[1]) for n, sentence in enumerate(sentences))


def write_raw(folder: Path) -> dict[str, Path]:
    """Write the archives; return their paths by their names in the source list."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "lang-8-20111007-L1-v2.dat").write_bytes(b"one bad byte: \xff\n" + lang8_text(1).encode())
    test = SENTENCES[10:30]
    members = {
        ("nucle_3_2", "release3.2.tar.gz"): {"release3.2/data/conll14st-preprocessed.m2": m2_text(0)},
        ("nucle", "release3.3.tar.bz2"): {"release3.3/bea2019/nucle.train.gold.bea19.m2": m2_text(0)},
        ("lang8", "lang8.bea19.tar.gz"): {"lang8.bea19/lang8.train.auto.bea19.m2": m2_text(1)},
        ("fce", "fce_v2.1.bea19.tar.gz"): {
            "fce/m2/fce.dev.gold.bea19.m2": m2_text(3, SENTENCES[20:]),
            "fce/m2/fce.train.gold.bea19.m2": m2_text(2),
        },
        ("wi_locness", "wi+locness_v2.1.bea19.tar.gz"): {
            "wi+locness/m2/ABC.train.gold.bea19.m2": m2_text(3),
            "wi+locness/m2/ABCN.dev.gold.bea19.m2": m2_text(1, SENTENCES[:20]),
        },
        ("conll14_test", "conll14st-test-data.tar.gz"): {
            "conll14st-test-data/noalt/official-2014.0.m2": m2_text(2, test),
            "conll14st-test-data/noalt/official-2014.combined.m2": m2_text(2, test, annotators=2),
            "conll14st-test-data/alt/official-2014.combined-withalt.m2": m2_text(2, test),
        },
    }
    files = {name: pack(folder / file, texts) for (name, file), texts in members.items()}
    files["nltk_punkt"] = write_punkt(folder / "punkt_tab.zip")
    return files | {"lang8_raw": folder / "lang-8-20111007-L1-v2.dat"}
