"""Small tables of the eight GLUE tasks in the published column formats."""

from pathlib import Path

WORDS = "the a cat dog house river sees likes finds old new green".split()  # noqa: SIM905
PARSES = ["sentence1_binary_parse", "sentence2_binary_parse", "sentence1_parse", "sentence2_parse"]
MNLI_COLUMNS = ["index", "promptID", "pairID", "genre", *PARSES, "sentence1", "sentence2"]
STS_COLUMNS = "index genre filename year old_index source1 source2 sentence1 sentence2".split()  # noqa: SIM905


def sentence(number: int) -> str:
    """Return a sentence of three words, which depend on the number."""
    return " ".join(WORDS[(number * step + step) % len(WORDS)] for step in (1, 5, 7)) + ' "'


def rows(name: str, split: str, number: int) -> list[str]:
    """Return the fields of one row of train, dev or test."""
    first, second, test = sentence(number), sentence(number + 3), split == "test"
    binary, entailed = str(number % 2), ("entailment", "not_entailment")[number % 2]
    relation = ("neutral", "entailment", "contradiction")[number % 3]
    i = str(number)
    return {
        "CoLA": [i, first] if test else ["gj04", binary, "*" if number % 2 else "", first],
        "SST-2": [i, first] if test else [first, binary],
        "MRPC": [i, "11", "12", first, second] if test else [binary, "11", "12", first, second],
        "STS-B": [i, *"abcdef", first, second, *([] if test else [f"{number % 6}.000"])],
        "QQP": [i, first, second] if test else [i, "1", "2", first, second, binary],
        "MNLI": [i, *"abcdefg", first, second, *([] if test else [relation, relation])],
        "QNLI": [i, first, second, *([] if test else [entailed])],
        "RTE": [i, first, second, *([] if test else [entailed])],
    }[name]


def header(name: str, split: str) -> list[str]:
    """Return the column titles of a table; empty for a table without a header."""
    test = split == "test"
    return {
        "CoLA": ["index", "sentence"] if test else [],
        "SST-2": ["index", "sentence"] if test else ["sentence", "label"],
        "MRPC": ["index" if test else "Quality", "#1 ID", "#2 ID", "#1 String", "#2 String"],
        "STS-B": [*STS_COLUMNS, *([] if test else ["score"])],
        "QQP": f"id {'' if test else 'qid1 qid2'} question1 question2 {'' if test else 'is_duplicate'}".split(),
        "MNLI": [*MNLI_COLUMNS, *([] if test else ["label1", "gold_label"])],
        "QNLI": ["index", "question", "sentence", *([] if test else ["label"])],
        "RTE": ["index", "sentence1", "sentence2", *([] if test else ["label"])],
    }[name]


def write_tables(raw: Path, name: str, sizes: tuple[int, int, int] = (12, 6, 5)) -> Path:
    """Write the tables of a task into its folder under ``raw``; return the folder."""
    folder = raw / name
    folder.mkdir(parents=True)
    for split, size in zip(("train", "dev", "test"), sizes, strict=True):
        lines = [header(name, split), *(rows(name, split, number) for number in range(size))]
        text = "".join("\t".join(line) + "\n" for line in lines if line)
        if name == "MNLI" and split == "dev":
            text = text.replace("label1\t", "label1\tlabel2\t").replace("\tneutral\t", "\tneutral\t-\t")
            text = text.replace("\tentailment\t", "\tentailment\t-\t")
            text = text.replace("\tcontradiction\t", "\tcontradiction\t-\t")
        sections = ("_matched", "_mismatched") if name == "MNLI" and split != "train" else ("",)
        for section in sections:
            (folder / f"{split}{section}.tsv").write_text(text, encoding="utf-8")
    return folder
