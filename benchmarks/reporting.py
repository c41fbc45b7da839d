"""Prints what ``speed.py`` has measured as Markdown."""

from __future__ import annotations

from statistics import median
from typing import Any

_BEYOND = "Memory of one forward and backward pass beyond parameters, gradients and Adam's moments:"
MEMORY_NOTES = {
    "cpu": f"{_BEYOND} bytes of the tensors that operators return, while they are alive.",
    "cuda": f"{_BEYOND} bytes that PyTorch's allocator hands out.",
}


def system_table(results: dict[str, dict[str, Any]], sentences: int, target_tokens: int) -> str:
    """Each system by itself: medians, and in brackets the least and the most."""
    lines = [
        "| system | parameters | training step, 10⁹ operations | ms | of it Adam, ms | target tokens/s "
        "| held for backward, MiB | peak, MiB | decoding, ms | sentences/s |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for name, result in results.items():
        cells = [name, f"{result['parameters'] / 1e6:.1f}M", _billions(result.get("operations"))]
        cells += [_times(result.get("train")), _times(result.get("update")), _rate(target_tokens, result.get("train"))]
        cells += [_mebibytes(result.get(key)) for key in ("held", "peak")]
        cells += [_times(result.get("decode")), _rate(sentences, result.get("decode"))]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def comparison_table(compared: list[dict[str, Any]]) -> str:
    """Ratios between systems, and whether the aims are met."""
    lines = ["| | ratio of | median (least–most) | aim | |", "|---|---|---:|---:|---|"]
    kinds = {"train": "training time", "decode": "decoding speed", "memory": "peak memory"}
    for row in compared:
        name = f"({row['system']} − one RK4 step)/{row['baseline']}" if row["less_one_step"] else row["name"]
        ratio = f"{row['median']:.3f}"
        if len(row["ratios"]) > 1:
            ratio += f" ({min(row['ratios']):.3f}–{max(row['ratios']):.3f})"
        kind = kinds[row["measure"]] + (" per operation" if row["per_operation"] else "")
        aim, verdict = ("", "")
        if row["aim"] is not None:
            aim, verdict = f"{row['aim'][0]} {row['aim'][1]:.2f}", "met" if row["met"] else "missed"
        lines.append(f"| {name} | {kind} | {ratio} | {aim} | {verdict} |")
    return "\n".join(lines)


def _times(seconds: list[float] | None) -> str:
    if seconds is None:
        return "–"
    return f"{1000 * median(seconds):.0f} ({1000 * min(seconds):.0f}–{1000 * max(seconds):.0f})"


def _rate(amount: int, seconds: list[float] | None) -> str:
    return "–" if seconds is None else f"{amount / median(seconds):,.1f}"


def _billions(count: int | None) -> str:
    return "–" if count is None else f"{count / 1e9:,.1f}"


def _mebibytes(size: int | None) -> str:
    return "–" if size is None else f"{size / 2**20:,.1f}"
