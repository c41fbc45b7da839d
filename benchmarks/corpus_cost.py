"""What a corpus costs before its training: CPU time and memory of each step of ``ode-transformer prepare``, and of the
start of fairseq-train.

    python benchmarks/corpus_cost.py --pairs 100000
    python benchmarks/corpus_cost.py --pairs 100000 1000000 --extrapolate 4500000 36000000 --cores 32

The text is synthetic: the words of both sides have the frequencies of Zipf's and Mandelbrot's law without a last word,
so that the number of different words grows with the text as it does in languages (at 4.5 million pairs, 1.4 million a
side). It is prepared as English-French is, by the recipe ``wmt14_en_fr``. Each step runs in a process of its own, with
one worker, so that its CPU time is that of all cores together.

Other sizes are extrapolated by the line through the last two sizes, from a single size in proportion. What learning
takes grows as the number of different words does. Memory is that of the largest process, beyond what it has at its
start. The hours suppose that all steps but learning use ``--cores`` cores, or as many as have work (``FEEDING``).
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from unittest import mock

import numpy as np

from ode_transformer.lab.corpora.vocabulary import MergeVocabulary
from ode_transformer.lab.recipes.experiment import Experiment
from ode_transformer.lab.recipes.machine import Machine
from ode_transformer.lab.recipes.options import find_recipe
from ode_transformer.lab.recipes.preparation import RecipeData
from ode_transformer.lab.recipes.recipe import Recipe, read_recipe
from ode_transformer.support.arguments import positive_int
from ode_transformer.support.files import read_json, write_text
from ode_transformer.support.subword_models import SUBWORD_NMT_FILE
from ode_transformer.support.tables import markdown_table

EXPONENT, SHIFT = 0.45, 15.0  # of the law: P(rank > r) = (1 + r / shift) ^ -exponent
WORDS = 25  # of a sentence on average, with log-normal lengths
FEEDING = 10  # cores that the one process which reads and writes the text keeps busy
LEARNING = "learn pieces"  # on one core
START = "start of fairseq-train, in each process"


@dataclass(frozen=True)
class Cost:
    """CPU seconds and gigabytes of a step."""

    seconds: float
    memory: float


@lru_cache(maxsize=100_000)
def spell(rank: int, language: str) -> str:
    """Return the word of a rank; rare words are long, and words share syllables."""
    onsets, vowels = ("bcdfghklmnprstvw", "aeiou") if language == "en" else ("bcdfgjlmnpqrstvz", "aeiouéè")
    syllables = [onset + vowel for vowel in vowels for onset in onsets]
    word = ""
    while rank or not word:
        rank, digit = divmod(rank, len(syllables))
        word += syllables[digit]
    return word


def sentences(count: int, language: str) -> Iterator[str]:
    """Yield random sentences, the same each time; those of both languages are equally long."""
    generator, chance = np.random.default_rng(1), np.random.default_rng(ord(language[0]))
    for start in range(0, count, 10_000):
        lengths = np.maximum(
            1, generator.lognormal(math.log(WORDS) - 0.18, 0.6, min(10_000, count - start)).astype(int)
        )
        ranks = (SHIFT * (chance.random(lengths.sum()) ** (-1 / EXPONENT) - 1)).clip(max=1e15).astype(np.int64)
        for end, length in zip(lengths.cumsum(), lengths, strict=True):
            words = [spell(rank, language) for rank in ranks[end - length : end].tolist()]
            words[0] = words[0].capitalize()
            yield " ".join(words) + "."


def synthetic_recipe(pairs: int, folder: Path, merges: int) -> tuple[Recipe, dict[str, Path]]:
    """Write raw text into a folder; return the recipe of it, and its files by name."""
    files = {}
    for split, count in (("train", pairs), ("valid", 100)):
        for language in ("en", "fr"):
            files[f"{split}_{language}"] = path = folder / f"raw.{split}.{language}"
            with open(path, "w", encoding="utf-8") as file:
                file.writelines(f"{sentence}\n" for sentence in sentences(count, language))
    published = read_recipe(find_recipe("wmt14_en_fr"))
    names = {split: [{"source_file": f"{split}_en", "target_file": f"{split}_fr"}] for split in ("train", "valid")}
    corpus = published.corpus.model_dump(include={"kind", "source", "target", "text", "keep"}) | names
    values = published.model_dump(exclude_unset=True) | {
        "corpus": corpus | {"test": {"test": names["valid"]}},
        "vocabulary": {"kind": "subword_nmt", "merges": merges},
        "sources": {name: str(path) for name, path in files.items()},
        **{"counts": {}, "expected": [], "preparations": {}, "variants": {}, "architectures": {}},
    }
    return Recipe.model_validate(values).for_arch(None), files


def measured(work: Callable[[], object]) -> Cost:
    """Run a step in a fork; return the CPU time of all its processes, and by how much the largest has grown."""
    reader, writer = os.pipe()
    sys.stdout.flush()
    if not (process := os.fork()):
        status = 1
        try:
            os.write(writer, Path("/proc/self/statm").read_bytes().split()[1])
            work()
            status = 0
        finally:
            sys.stdout.flush()
            os._exit(status)
    os.close(writer)
    _, status, usage = os.wait4(process, 0)
    with open(reader, "rb") as file:
        before = int(file.read()) * os.sysconf("SC_PAGESIZE")
    if status:
        raise SystemExit("a step has failed")
    return Cost(usage.ru_utime + usage.ru_stime, (usage.ru_maxrss * 1024 - before) / 1e9)


def start_training(data: RecipeData) -> None:
    """Do what each process of fairseq-train does with the text before its first update: order it, make batches."""
    from fairseq import tasks

    settings = Experiment(data.recipe, data, Machine(0)).train_settings
    task = tasks.setup_task(settings)
    task.load_dataset("train")
    batches = task.get_batch_iterator(task.dataset("train"), max_tokens=4096, max_positions=(1024, 1024), seed=1)
    next(batches.next_epoch_itr(shuffle=True))


def costs(pairs: int, merges: int) -> dict[str, Cost]:
    """Measure the steps of a corpus of so many pairs."""
    with tempfile.TemporaryDirectory(prefix="corpus") as name:
        folder = Path(name)
        recipe, files = synthetic_recipe(pairs, folder, merges)
        data, learned = RecipeData(recipe, folder / "data"), folder / "learned"
        learned.mkdir()
        texts = [data.corpus / f"train.{language}" for language in data.languages]
        found = {"clean and tokenise": measured(lambda: data._build_corpus(files, 1))}
        found[LEARNING] = measured(lambda: recipe.vocabulary.learn(texts, learned))

        def take_learned(vocabulary: MergeVocabulary, texts: object, output: Path) -> None:
            shutil.copy(learned / SUBWORD_NMT_FILE, output)

        with mock.patch.object(MergeVocabulary, "learn", take_learned):
            found["divide into pieces, filter"] = measured(lambda: data._encode_pieces(1))
        found["binarise"] = measured(lambda: data._binarise(1))
        found[START] = measured(lambda: start_training(data))
    return found


def known_costs(pairs: int, merges: int, results: Path) -> dict[str, Cost]:
    """Return the costs of a size from the folder of results, where they are written once they are measured."""
    file = results / f"{pairs}-pairs-{merges}-merges.json"
    if not file.exists():
        results.mkdir(parents=True, exist_ok=True)
        measured_costs = {step: asdict(cost) for step, cost in costs(pairs, merges).items()}
        write_text(file, json.dumps(measured_costs, indent=1) + "\n")
    return {step: Cost(**cost) for step, cost in read_json(file).items()}


def extrapolated(step: str, sizes: list[int], found: list[Cost], pairs: int) -> Cost:
    """Return the cost of a step at another size."""
    values = np.array([(cost.seconds, cost.memory) for cost in found])
    if step == LEARNING:
        factor = (pairs / sizes[-1]) ** (1 / (1 + EXPONENT))
        return Cost(*(values[-1] * factor).tolist())
    slope = np.diff(values[-2:], axis=0)[0] / (sizes[-1] - sizes[-2]) if len(sizes) > 1 else values[-1] / sizes[-1]
    return Cost(*(values[-1] + slope * (pairs - sizes[-1])).tolist())


def hours(step: str, cost: Cost, cores: int) -> float:
    """Return the time of a step on a machine."""
    return cost.seconds / 3600 / (1 if step in (LEARNING, START) else min(cores, FEEDING))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description="Measures what the preparation of a corpus costs.")
    parser.add_argument("--pairs", type=positive_int, nargs="+", default=[100_000], metavar="N", help="measured sizes")
    parser.add_argument("--merges", type=positive_int, default=40_000, metavar="N", help="default: %(default)s")
    default = Path("corpus_cost")
    kept = "folder of measured sizes, which are not measured again (default: %(default)s)"
    parser.add_argument("--results", type=Path, default=default, metavar="DIR", help=kept)
    parser.add_argument("--extrapolate", type=positive_int, nargs="+", default=[], metavar="N", help="other sizes")
    parser.add_argument("--cores", type=positive_int, default=32, metavar="N", help="of the machine of the hours")
    args = parser.parse_args()
    found = [known_costs(pairs, args.merges, args.results) for pairs in args.pairs]
    columns = {f"{pairs:,} pairs": of_size for pairs, of_size in zip(args.pairs, found, strict=True)}
    for pairs in args.extrapolate:
        columns[f"{pairs:,} pairs, extrapolated"] = {
            step: extrapolated(step, args.pairs, [of_size[step] for of_size in found], pairs) for step in found[0]
        }
    rows = []
    for step in found[0]:
        rows.append([step, *(f"{of_size[step].seconds:,.1f}" for of_size in columns.values())])
    totals = [sum(hours(step, cost, args.cores) for step, cost in of_size.items()) for of_size in columns.values()]
    largest = [max(cost.memory for cost in of_size.values()) for of_size in columns.values()]
    rows.append(["memory of the largest process, GB", *(f"{memory:.2g}" for memory in largest)])
    rows.append([f"all, hours on {args.cores} cores", *(f"{total:.2f}" for total in totals)])
    print(markdown_table(["CPU seconds", *columns], rows))


if __name__ == "__main__":
    main()
