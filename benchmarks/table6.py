"""Presets for Table 6 of ODE Transformer (2022): inference speed and training memory at the paper's sizes and batch.

The paper trains with 4,096 tokens on each GPU in half precision, here 164 pairs of 25 tokens. It states neither its
batch nor its beam in decoding, nor which RK2 it measures; here RK2 has fixed coefficients.
"""

from __future__ import annotations

from statistics import median
from typing import Any

from ode_transformer.support.tables import markdown_table

BATCH_TOKENS, LENGTH = 4096, 25
BYTES_PER_PARAMETER = 16  # in half precision: weight, gradient, single-precision weight, two moments of Adam

# system -> sentences a second and GB in training, published for each size
PUBLISHED: dict[str, dict[str, tuple[float, float]]] = {
    "euler-6": {"base": (147.1, 7.2), "big": (98.7, 13.2)},
    "euler-12": {"base": (141.3, 10.9), "big": (94.5, 18.7)},
    "euler-24": {"base": (122.0, 14.1), "big": (87.3, 23.5)},
    "rk2-6": {"base": (141.6, 8.5), "big": (93.9, 15.1)},
    "rk4-6": {"base": (124.8, 9.7), "big": (87.1, 18.2)},
}
BASELINE = "euler-6"

PRESETS: dict[str, dict[str, Any]] = {
    f"table6-{size}": {
        "size": size,
        "systems": list(PUBLISHED),
        "sentences": round(BATCH_TOKENS / LENGTH),
        "source_length": LENGTH,
        "target_length": LENGTH,
        "device": "cuda",
        "precision": "fp16",
    }
    for size in ("base", "big")
}


def published_table(results: dict[str, dict[str, Any]], size: str, sentences: int) -> str:
    """Return measured and published values, each also relative to six residual layers.

    :param results: of ``speed.measure``
    :param size: of the published values, base or big
    """
    rows = []
    measured = {name: _measured(result, sentences) for name, result in results.items() if name in PUBLISHED}
    for name, values in measured.items():
        cells = [name]
        for value, published, unit in zip(values, PUBLISHED[name][size], (1, 2**30), strict=True):
            position = len(cells) // 4
            baseline, published_baseline = (
                measured.get(BASELINE, (None, None))[position],
                PUBLISHED[BASELINE][size][position],
            )
            ratio = "–" if value is None or baseline is None else f"{value / baseline:.3f}"
            cells += ["–" if value is None else f"{value / unit:,.1f}", ratio]
            cells += [f"{published:,.1f}", f"{published / published_baseline:.3f}"]
        rows.append(cells)
    titles = ["system", "sentences/s", f"÷ {BASELINE}", "published", "÷ Residual-6"]
    titles += ["GiB", f"÷ {BASELINE}", "published, GB", "÷ Residual-6"]
    return markdown_table(titles, rows)


def _measured(result: dict[str, Any], sentences: int) -> tuple[float | None, float | None]:
    """Return sentences a second, and the peak of memory with parameters, gradients and Adam's moments."""
    speed = sentences / median(result["decode"]) if "decode" in result else None
    memory = result["peak"] + BYTES_PER_PARAMETER * result["parameters"] if "peak" in result else None
    return speed, memory
