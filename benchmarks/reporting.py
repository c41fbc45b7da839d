"""Measurements of ``speed.py`` as Markdown tables."""

from __future__ import annotations

from statistics import median
from typing import Any

from ode_transformer.support.tables import markdown_table

_RATIOS = {"train": "training time", "decode": "decoding speed", "memory": "peak memory"}
_NOT_MEASURED = "–"


def system_table(results: dict[str, dict[str, Any]], sentences: int, target_tokens: int) -> str:
    """Return a row for each system: medians, with the least and the greatest value in brackets.

    Columns that nobody measured are left out.
    """
    titles = [
        *("system", "parameters", "training step, 10⁹ operations", "ms", "of it Adam, ms", "target tokens/s"),
        "10¹² operations/s",
        *("held for backward, MiB", "peak, MiB", "decoding, ms", "sentences/s"),
        *("training step, CPU ms", "decoding, CPU ms", "kernels of both passes"),
    ]
    rows = []
    for name, result in results.items():
        entries = [name, f"{result['parameters'] / 1e6:.1f}M", _number(result.get("operations"), 1e9)]
        entries += [_times(result.get(key)) for key in ("train", "update")]
        entries += [_rate(target_tokens, result.get("train"))]
        entries += [_rate(result.get("operations", 0), result.get("train") if "operations" in result else None, 1e12)]
        entries += [_number(result.get(key), 2**20) for key in ("held", "peak")]
        entries += [_times(result.get("decode")), _rate(sentences, result.get("decode"))]
        entries += [
            _times(result.get("train_cpu")),
            _times(result.get("decode_cpu")),
            _number(result.get("kernels"), 1),
        ]
        rows.append(entries)
    measured = [column for column in zip(titles, *rows, strict=True) if set(column[1:]) != {_NOT_MEASURED}]
    titles, *rows = map(list, zip(*measured, strict=True))
    return markdown_table(titles, rows)


def comparison_table(comparisons: list[dict[str, Any]]) -> str:
    """Return a row for each comparison."""
    rows = []
    for row in comparisons:
        ratio = f"{row['median']:.3f}"
        if len(row["ratios"]) > 1:
            ratio += f" ({min(row['ratios']):.3f}–{max(row['ratios']):.3f})"
        kind = _RATIOS[row["measure"]] + (" per operation" if row["per_operation"] else "")
        rows.append([row["name"], kind, ratio])
    return markdown_table(["", "ratio of", "median (least–most)"], rows, "llr")


def _number(value: float | None, unit: float) -> str:
    return _NOT_MEASURED if value is None else f"{value / unit:,.1f}"


def _rate(amount: int, seconds: list[float] | None, unit: float = 1.0) -> str:
    return _number(None if seconds is None else amount / median(seconds), unit)


def _times(seconds: list[float] | None) -> str:
    if seconds is None:
        return _NOT_MEASURED
    return f"{1000 * median(seconds):.0f} ({1000 * min(seconds):.0f}–{1000 * max(seconds):.0f})"
