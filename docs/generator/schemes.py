"""Table of all depth schemes, from their entries, measurements, published scores and ours.

python docs/generate.py
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from generator.scheme_facts import DEPTH, aliases, name_without_alias, scheme_facts, scheme_names
from ode_transformer.lab.metrics.significance import compare_systems
from ode_transformer.lab.recipes.recipe import PublishedResult, read_recipe
from ode_transformer.lab.studies import find_study
from ode_transformer.lab.studies.study import read_study
from ode_transformer.nn.architectures import SCHEME_OPTIONS
from ode_transformer.support.tables import markdown_table
from ode_transformer.support.yaml_file import CONFIGS

RECIPE, SIZE = "wmt14_en_de", "wmt_en_de"
RESULTS = Path(__file__).parents[1] / "results" / "studies"
OUR_RESULTS = ("schemes-g2p.csv", "later_schemes-g2p.csv")  # what a later file has counts
SCHEME_FLAGS = {"encoder-ode-scheme", "encoder-layer-history", "ode-coefficients"}
TITLES = (
    *("scheme", "kind", "evaluations", "states", "order", "measured"),
    *(f"published BLEU, {RECIPE}", "our PER, difference to Residual"),
)


def scheme_and_size(arch: str, flags: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return the encoder's scheme and the size in an architecture's name; None for a system of further choices."""
    if not set(flags) <= SCHEME_FLAGS:
        return None
    if arch.startswith("dlstm_"):
        return "dlstm", arch.removeprefix("dlstm_")
    for method, options in SCHEME_OPTIONS.items():
        prefix = f"ode_transformer_{method}_"
        coefficients = flags.get("ode-coefficients", options.get("ode_coefficients", "tableau"))
        if arch.startswith(prefix) and coefficients in ("tableau", "ema"):
            scheme = str(flags.get("encoder-ode-scheme", options["encoder_ode_scheme"]))
            return name_without_alias(scheme), arch.removeprefix(prefix)
    return None


def published_scores(results: list[PublishedResult]) -> dict[str, str]:
    """Return the published BLEU of each scheme, with the gain over the same paper's residual model of the size."""
    scores: dict[tuple[str, str, str], float] = {}  # paper, scheme, size; the first of several tables
    for result in results:
        system = scheme_and_size(result.arch, result.flags)
        if system is not None and result.variant is None and "BLEU" in result.scores:
            scores.setdefault((result.table.partition(",")[0], *system), result.scores["BLEU"])
    texts: dict[str, str] = {}
    for (paper, scheme, size), score in sorted(scores.items(), key=lambda entry: entry[0][2] != SIZE):
        baseline = scores.get((paper, "euler", size))
        gain = f" ({score - baseline:+.2f})" if baseline is not None and scheme != "euler" else ""
        texts.setdefault(scheme, f"{score:.2f}{gain}")
    return texts


def values_by_system(path: Path, column: str) -> dict[str, list[float]]:
    """Return the values of a column of a study's CSV file by system, without empty ones."""
    values: dict[str, list[float]] = {}
    with path.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            if row[column]:
                values.setdefault(row["system"], []).append(float(row[column]))
    return values


def our_scores(folder: Path) -> dict[str, str]:
    """Return the difference of each scheme's phoneme error rate to the residual model's, by Dunnett's test.

    :param folder: of the studies' results, docs/results/studies
    """
    results = [compare_systems(values_by_system(folder / name, "PER"), "Residual", "PER") for name in OUR_RESULTS]
    texts = {}
    for system in read_study(find_study("schemes")).systems:
        chosen = scheme_and_size(system.arch, system.flags)
        compared = next((of_file[system.name] for of_file in reversed(results) if system.name in of_file), None)
        if chosen is not None and system.depth == 1 and compared is not None:
            texts[chosen[0]] = str(compared)
    return texts | {"euler": ""}


def rows() -> Iterator[list[str]]:
    """Yield the row of each scheme."""
    published = published_scores(read_recipe(CONFIGS / f"{RECIPE}.yaml").expected)
    ours = our_scores(RESULTS)
    for name in scheme_names():
        facts = scheme_facts(name)
        order = measured = ""
        if facts.order is not None:
            order = str(facts.order)
            measured = "none" if facts.measured_order is None else f"{facts.measured_order:.1f}"
        yield [
            *(
                " = ".join(f"`{each}`" for each in (name, *aliases(name))),
                facts.kind,
                str(facts.evaluations),
                str(facts.states),
                order,
                measured,
            ),
            *(published.get(name, ""), ours.get(name, "")),
        ]


TEXT = f"""# Where each scheme stands

`python docs/generate.py` writes this page from the schemes' entries, from measurements, from `configs/{RECIPE}.yaml`,
from [schemes-g2p.csv](results/studies/schemes-g2p.csv) and from
[later_schemes-g2p.csv](results/studies/later_schemes-g2p.csv). The equations are in
[ode_transformer.md](ode_transformer.md).

- **evaluations** of a layer in one step. Compute and caches grow with them. Every scheme decodes exactly, step by step
  and after the rows of the beam were reordered (`tests/models/test_properties.py`).
- **states** that layer {DEPTH} passes on, each as large as y. With `--checkpoint-activations` a training keeps these
  alone.
- **order** that the entry states, and the power of the error **measured** on y' = y² cos t at the start of training. An
  order of 0 means that the scheme does not solve y' = F(y).
- **published** scores of the base size, with the gain over the residual model of the same paper. The abstract of
  PCformer does not name its larger size.
- **our** phoneme error rates on a CPU: lower is better. They are of
  [short trainings](results/phonemes.md#after-800-updates).

"""


def page() -> str:
    """Return the text of docs/schemes.md."""
    return TEXT + markdown_table(TITLES, rows(), alignment="llrrrrll") + "\n"


if __name__ == "__main__":
    print(page(), end="")
