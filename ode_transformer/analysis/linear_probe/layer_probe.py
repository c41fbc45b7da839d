"""The linear probe: one layer after another of a trained model is replaced by a linear map; the test set is scored."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ode_transformer.analysis.linear_probe.layer_fits import distil_layer, fit_layers
from ode_transformer.analysis.linear_probe.layer_replacement import linear_layer, relative_change, replace_layer
from ode_transformer.analysis.linear_probe.linear_fit import LinearFit
from ode_transformer.analysis.linear_probe.probe_setup import ProbeSetup
from ode_transformer.decoding.split_translation import reference_lines, translate_split
from ode_transformer.metrics.metric import Score, Settings
from ode_transformer.metrics.registry import METRICS
from ode_transformer.nn.observers import LayerId
from ode_transformer.support.console import print_progress
from ode_transformer.support.files import write_text
from ode_transformer.support.lines import read_lines

CHUNK_SIZE = 400  # sentences that are translated together


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
    _write_lines(path, reference_lines(setup.task, setup.test, setup.test_numbers, setup.remove_bpe))
    return path


def decode(setup: ProbeSetup, layer: LayerId | None = None, fit: LinearFit | None = None) -> Path:
    """Translate the test set with one layer replaced, or none; return the file of the translations.

    :param fit: the map in place of ``layer``
    """
    options = setup.options
    request = [
        "decode",
        setup.test_digest,
        options.sentences,
        asdict(options.search),
        options.batch_size,
        setup.remove_bpe,
    ]
    name, path = "decode the whole model", setup.hypotheses_path(layer)
    if layer is not None:
        name = f"decode {layer}, {options.objective}"
        request += [*setup.training_request, options.distillation_settings]

    def translate() -> None:
        search = asdict(options.search)
        lines = translate_split(setup.hub, setup.test, setup.test_numbers, setup.remove_bpe, CHUNK_SIZE, **search)
        _write_lines(path, lines)

    def translate_with_replacement() -> None:
        assert layer is not None
        assert fit is not None
        function = linear_layer(fit.weight, fit.bias, next(setup.model.parameters()))
        with replace_layer(setup.model, layer, function):
            translate()

    setup.jobs(*request).run(name, None, path, translate if layer is None else translate_with_replacement)
    return path


def _write_lines(path: Path, lines: Sequence[str]) -> None:
    write_text(path, "".join(f"{line}\n" for line in lines))
