"""The linear probe: one layer after another of a trained model is replaced by a linear map; the test set is scored."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from torch import Tensor

from ode_transformer.analysis.linear_probe.layer_fits import distil_layer, fit_layers
from ode_transformer.analysis.linear_probe.layer_replacement import linear_layer, relative_change, replace_layer
from ode_transformer.analysis.linear_probe.linear_fit import LinearFit
from ode_transformer.analysis.linear_probe.probe_setup import ProbeSetup
from ode_transformer.decoding.translate import search_best, target_line
from ode_transformer.metrics.metric import Score, Settings
from ode_transformer.metrics.registry import METRICS
from ode_transformer.nn.observers import LayerId
from ode_transformer.support.console import ProgressMeter, print_progress
from ode_transformer.support.files import write_text
from ode_transformer.support.lines import read_lines

REPORTED_SENTENCES = 400  # translated between two lines of progress


def probe_layers(setup: ProbeSetup) -> dict[str, Any]:
    """Replace each chosen layer in turn; return all results, as ``results.json`` has them."""
    options = setup.options
    references = read_lines(write_references(setup))
    settings = Settings(references, tokenize=options.tokenize or "13a")

    def score(hypotheses: Path) -> Score:
        (score,) = METRICS[options.metric](read_lines(hypotheses), settings)
        print_progress(f"  {score}")
        return score

    fits = fit_layers(setup)
    full = score(decode(setup))
    layers = []
    for layer, least_squares in fits.items():
        fit = least_squares
        if options.distillation is not None:
            fit = distil_layer(setup, options.distillation, layer, least_squares)
        layer_score = score(decode(setup, layer, fit))
        layers.append(
            {
                **layer._asdict(),
                "score": asdict(layer_score),
                "delta_percent": relative_change(layer_score.value, full.value),
                "r_squared": least_squares.r_squared,
                "positions": least_squares.positions,
                "rank": least_squares.rank,
            }
        )
    return {
        "command": options.command,
        "checkpoint": {"path": str(options.checkpoint), "content": setup.model_digest},
        "objective": options.objective,
        "training": {
            **options.distillation_settings,
            "subset": options.train_subset,
            "sentences": sum(map(len, setup.batches)),
            "content": setup.train_digest,
        },
        "test": {"subset": options.test_subset, "sentences": len(references), "content": setup.test_digest},
        "full": asdict(full),
        "layers": layers,
    }


def write_references(setup: ProbeSetup) -> Path:
    """Write the references of the test set as fairseq-generate prints them; return their file."""
    path = setup.output / "references.txt"
    rows = setup.test.rows(range(len(setup.test.too_long)))
    write_text(path, "".join(_text_line(setup, row["target"], escape_unk=True) for row in rows))
    return path


def decode(setup: ProbeSetup, layer: LayerId | None = None, fit: LinearFit | None = None) -> Path:
    """Translate the test set with one layer replaced, or none; return the file of the translations.

    :param fit: the map in place of ``layer``
    """
    options = setup.options
    request = ["decode", setup.test_digest, asdict(options.search), options.batch_size, setup.remove_bpe]
    name, path = "decode the whole model", setup.hypotheses_path(layer)
    if layer is not None:
        name = f"decode {layer}, {options.objective}"
        request += [*setup.training_request, options.distillation_settings]

    def translate() -> None:
        sources = [row["source"] for row in setup.test.rows(range(len(setup.test.too_long)))]
        meter = ProgressMeter("sentences", len(sources))
        lines: list[str] = []
        for tokens in search_best(setup.hub, sources, REPORTED_SENTENCES, **asdict(options.search)):
            lines.append(_text_line(setup, tokens))
            if len(lines) % REPORTED_SENTENCES == 0 or len(lines) == len(sources):
                meter.update(len(lines))
        write_text(path, "".join(lines))

    def translate_with_replacement() -> None:
        assert layer is not None
        assert fit is not None
        function = linear_layer(fit.weight, fit.bias, next(setup.model.parameters()))
        with replace_layer(setup.model, layer, function):
            translate()

    setup.jobs(*request).run(name, None, path, translate if layer is None else translate_with_replacement)
    return path


def _text_line(setup: ProbeSetup, tokens: Tensor, escape_unk: bool = False) -> str:
    return target_line(setup.task, tokens, setup.remove_bpe, escape_unk) + "\n"
