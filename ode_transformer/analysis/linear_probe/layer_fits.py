"""Linear maps fitted to layers of a model: by least squares for all layers in one pass, or by likelihood one by one."""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
from pathlib import Path

import torch

from ode_transformer.analysis.linear_probe.layer_replacement import Distillation, batch_sums
from ode_transformer.analysis.linear_probe.linear_fit import LinearFit
from ode_transformer.analysis.linear_probe.probe_files import SavedSums, load_fit, load_sums, save_fit, save_sums
from ode_transformer.analysis.linear_probe.probe_setup import LEAST_SQUARES, LIKELIHOOD, DistillationOptions, ProbeSetup
from ode_transformer.checkpoints.reading import load_checkpoint, save_checkpoint
from ode_transformer.nn.observers import LayerId
from ode_transformer.support.console import ProgressMeter, print_progress
from ode_transformer.support.errors import UserError


def fit_layers(setup: ProbeSetup) -> dict[LayerId, LinearFit]:
    """Fit all chosen layers by least squares; those without a solution share one pass over the training data.

    :raises UserError: there is too little training data
    """
    request = ["fit", *setup.training_request]
    sums_path = setup.output / "solutions" / "sums.pt"

    def path(layer: LayerId) -> Path:
        return setup.solution_path(layer, LEAST_SQUARES)

    unsolved = [layer for layer in setup.layers if not setup.jobs(*request).is_done(f"fit {layer}", None, path(layer))]
    sums = collect_sums(setup, unsolved, sums_path, setup.jobs(*request).digest).sums if unsolved else {}

    def solve(layer: LayerId) -> None:
        try:
            fit = sums[layer].fit()
        except ValueError as error:
            raise UserError(f"{layer}: {error}: give more training data (--train-sentences)") from error
        print_progress(f"  R² {fit.r_squared:.4f} of {fit.positions:,} positions")
        save_fit(fit, path(layer))

    # An interrupted pass may have been for more layers than are chosen now.
    for layer in dict.fromkeys([*setup.layers, *sums]):
        setup.jobs(*request).run(f"fit {layer}", None, path(layer), partial(solve, layer))
    sums_path.unlink(missing_ok=True)
    return {layer: load_fit(path(layer), setup.hub.device) for layer in setup.layers}


def collect_sums(setup: ProbeSetup, layers: Collection[LayerId], path: Path, request: str) -> SavedSums:
    """Make one pass over the training data, or resume an interrupted one that was for all these layers.

    :param path: file in which the sums are saved during the pass
    :param request: digest of everything on which the sums depend
    """
    state = SavedSums(request, list(layers))
    if path.exists():
        saved = load_sums(path, setup.hub.device)
        if saved.request == request and set(layers) <= set(saved.layers):
            state = saved
            print_progress(f"the pass over the training data goes on at batch {state.batches + 1:,}")
    print_progress(f"sums over {sum(map(len, setup.batches)):,} sentences of {setup.options.train_subset}")
    if omitted := int(setup.train.too_long[: setup.options.max_train_sentences].sum()):
        print_progress(f"  {omitted:,} more are longer than the model takes and left out")
    meter = ProgressMeter("batches", len(setup.batches))
    while state.batches < len(setup.batches):
        sample = setup.training_sample(setup.batches[state.batches])
        state.add(batch_sums(setup.model, sample["net_input"], state.layers))
        meter.update(state.batches)
        if meter.is_save_due():
            save_sums(path, state)
    save_sums(path, state)
    return state


def distil_layer(setup: ProbeSetup, options: DistillationOptions, layer: LayerId, start: LinearFit) -> LinearFit:
    """Train W and b of one layer by the likelihood of the training data, starting from the least-squares solution."""
    path = setup.solution_path(layer, LIKELIHOOD)
    partial_path = setup.solution_path(layer, LIKELIHOOD, "partial.pt")
    jobs = setup.jobs(LIKELIHOOD, *setup.training_request, setup.options.distillation_settings)
    request = jobs.digest

    def train() -> None:
        training = Distillation(setup.model, layer, start, options.updates, options.lr)
        if partial_path.exists() and (state := load_checkpoint(partial_path))["request"] == request:
            training.load_state_dict(state["training"])
            print_progress(f"  goes on after update {training.update:,}")
        meter = ProgressMeter("updates", options.updates)
        while training.update < options.updates:
            epoch, index = divmod(training.update, len(setup.batches))
            generator = torch.Generator().manual_seed(options.seed + epoch)
            number = torch.randperm(len(setup.batches), generator=generator)[index]
            loss = training.step(setup.training_sample(setup.batches[number]), setup.padding_idx)
            if training.update == 1:
                print_progress(f"  loss {loss:.4f} nats per token in the first batch")
            meter.update(training.update, f", loss {loss:.4f} nats per token")
            if meter.is_save_due():
                save_checkpoint({"request": request, "training": training.state_dict(), "model": {}}, partial_path)
        weight, bias = training.linear.weight.detach(), training.linear.bias.detach()
        save_fit(LinearFit(weight, bias, start.positions, start.rank, start.r_squared), path)
        partial_path.unlink(missing_ok=True)

    jobs.run(f"train {layer}", None, path, train)
    return load_fit(path, setup.hub.device)
