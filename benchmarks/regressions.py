"""Comparison of ``speed.py``'s ratios with those of a file that ``--json`` wrote.

A ratio has worsened if its median is worse than the recorded one by more than the noise, which is measured: the larger
of the two interquartile ranges of the ratios of single rounds, of now and of then. Memory is counted and has no noise.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from systems import Comparison

from ode_transformer.support.errors import UserError
from ode_transformer.support.tables import markdown_table

Key = tuple[str, str]  # measure and name of a comparison


@dataclass(frozen=True)
class Change:
    """A ratio that was measured twice.

    :param difference: how much worse the median is now; negative where it is better
    :param noise: the difference that single rounds show, too
    """

    measure: str
    name: str
    recorded: float
    now: float
    difference: float
    noise: float

    @property
    def worsened(self) -> bool:
        """True if the difference is larger than the noise."""
        return self.difference > max(self.noise, 1e-9)


def recorded_ratios(
    path: Path, setting: Mapping[str, Any], comparisons: Sequence[Comparison]
) -> dict[Key, list[float]]:
    """Return the recorded ratios of those comparisons that the file has.

    :param setting: of the measurement to come, with its number of threads
    :raises UserError: the file is not one of ``--json``, has another setting, or none of the comparisons
    """
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        # Files of before had no_onednn in the command alone.
        then = {"no_onednn": "--no-onednn" in record["ran"]["command"].split()} | record["setting"]
        then["threads"] = int(record["ran"].get("threads", 0))
        rows = record["comparisons"]
        ratios = {(row["measure"], row["name"]): [float(ratio) for ratio in row["ratios"]] for row in rows}
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path}: not a file of --json: {error!r}") from error
    for name, value in setting.items():
        if then.get(name) != value:
            raise UserError(f"{path}: measured with {name.replace('_', ' ')} {then.get(name)}, not {value}")
    common = {key: ratios[key] for key in ((c.measure, c.name) for c in comparisons) if key in ratios}
    if not common:
        raise UserError(f"{path}: has none of the comparisons to be measured")
    return common


def compare_with_record(outcomes: Sequence[Mapping[str, Any]], recorded: Mapping[Key, list[float]]) -> list[Change]:
    """Return the change of each ratio that is recorded, in the order of ``outcomes``, from ``speed.compare``."""
    changes = []
    for outcome in outcomes:
        key = outcome["measure"], outcome["name"]
        if key in recorded:
            then, now = median(recorded[key]), median(outcome["ratios"])
            difference = then - now if outcome["measure"] == "decode" else now - then  # speeds should be high
            noise = max(_spread(recorded[key]), _spread(outcome["ratios"]))
            changes.append(Change(*key, then, now, difference, noise))
    return changes


def _spread(ratios: list[float]) -> float:
    """Return the interquartile range."""
    if len(ratios) == 1:
        return 0.0
    first, _, third = quantiles(ratios, n=4, method="inclusive")
    return third - first


def change_table(changes: Sequence[Change]) -> str:
    """Return a row for each change, and whether the ratio has worsened."""
    rows = [
        [
            *(change.name, change.measure, f"{change.recorded:.3f}", f"{change.now:.3f}", f"{change.noise:.3f}"),
            "worsened" if change.worsened else "",
        ]
        for change in changes
    ]
    return markdown_table(["", "ratio of", "recorded", "now", "noise", ""], rows, "llrrrl")
