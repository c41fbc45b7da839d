"""Sub-layers by kernels and by formulas."""

from functools import partial
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, nn
from torch.nn.functional import layer_norm

PROBABILITY, ROWS, WIDTH, INNER = 0.3, 3, 40, 600  # an inner layer of two blocks of columns
# Type; s is there; a normalisation follows
CASES = [(dtype, *case) for dtype in (torch.float32, torch.float16) for case in ((True, True), (False, True))]
CASES += [(torch.bfloat16, True, False), (torch.bfloat16, False, False)]
Outcome = dict[str, Any]
SEVERAL_PROGRAMS = patch("ode_transformer.speed.sublayers.ROWS", 2)


def tensors(dtype: torch.dtype, device: str = "cpu") -> dict[str, Tensor]:
    """Return what the kernels read, and factors of their results."""
    generator = torch.Generator().manual_seed(1)
    wide, inner, one = (ROWS, WIDTH), (ROWS, INNER), (WIDTH,)
    shapes = {"u": wide, "total": wide, "y": wide, "bias": one, "weight": one, "shift": one, "z": inner, "b": (INNER,)}
    read = {name: torch.randn(shape, generator=generator).to(device, dtype) for name, shape in shapes.items()}
    factors = {
        name: torch.randn(shape, generator=generator).to(device)
        for name, shape in (("ds", wide), ("dx", wide), ("dh", inner))
    }
    return {name: nn.Parameter(x) for name, x in read.items()} | factors


@SEVERAL_PROGRAMS
def functions(dtype: torch.dtype, has_total: bool, normalizes: bool, device: str = "cpu") -> Outcome:
    """Return masks, results and gradients of both functions."""
    from ode_transformer.speed.sublayers import activate, add_dropped

    x, seed = tensors(dtype, device), torch.tensor([2**62 + 5], device=device)
    norm = nn.LayerNorm(WIDTH).to(dtype)
    norm.weight, norm.bias = x["weight"], x["shift"]  # type: ignore[assignment]
    read = [x["u"], x["bias"], x["total"] if has_total else None, x["y"], norm if normalizes else None]
    outputs = [y for y in add_dropped(*read, seed, PROBABILITY) if y is not None]
    h = activate(x["z"], x["b"], seed, PROBABILITY)
    sum(((y * g).sum() for y, g in zip(outputs, (x["ds"], x["dx"]), strict=False)), (h * x["dh"]).sum()).backward()
    wide, inner, zeros = (torch.ones(ROWS, n, device=device) for n in (WIDTH, INNER, INNER))
    zeros.zero_()
    with torch.no_grad():
        masks = [add_dropped(wide, zeros[0], None, wide, None, seed, PROBABILITY)[0] != 0]
        masks += [activate(inner, zeros[0], seed + add, PROBABILITY) != 0 for add in (0, 1)]
    gradients = {name: y.grad.cpu() for name, y in x.items() if y.grad is not None}
    return {
        "masks": [mask.cpu() for mask in masks],
        "outputs": [y.detach().cpu() for y in (*outputs, h)],
        "gradients": gradients,
    }


def assert_formula(case: tuple[torch.dtype, bool, bool], outcome: Outcome) -> None:
    """Compare results and gradients with those of the formula in double precision with the same masks."""
    (dtype, has_total, normalizes), (mask, inner_mask, other_mask) = case, outcome["masks"]
    x = {name: y.detach().double().requires_grad_(y.requires_grad) for name, y in tensors(dtype).items()}
    s = torch.where(mask, (x["u"] + x["bias"]) / (1 - PROBABILITY), 0.0) + (x["total"] if has_total else 0)
    h = torch.where(inner_mask, torch.relu(x["z"] + x["b"]) / (1 - PROBABILITY), 0.0)
    normal = [layer_norm(x["y"] + s, (WIDTH,), x["weight"], x["shift"])] if normalizes else []
    expected = [s, *normal, h]
    factors = [x["ds"], *([x["dx"]] if normalizes else []), x["dh"]]
    torch.stack([(y * g).sum() for y, g in zip(expected, factors, strict=True)]).sum().backward()
    tolerance = {"rtol": 4 * torch.finfo(dtype).eps, "atol": 8 * torch.finfo(dtype).eps}
    for y, z in zip(outcome["outputs"], expected, strict=True):
        assert y.dtype == dtype
        torch.testing.assert_close(y.double(), z, **tolerance)
    gradients = {name: y.grad for name, y in x.items() if y.grad is not None}
    assert outcome["gradients"].keys() == gradients.keys()
    for name, gradient in outcome["gradients"].items():
        torch.testing.assert_close(gradient.double(), gradients[name], **tolerance)
    assert abs(1 - inner_mask.double().mean() - PROBABILITY) < 0.05
    assert (
        len({tuple(row.tolist()) for row in (*mask[1:], *inner_mask[:, :WIDTH], *inner_mask[:, -WIDTH:])})
        == 3 * ROWS - 1
    )
    assert not torch.equal(inner_mask, other_mask)


@SEVERAL_PROGRAMS
def checkpointed() -> Outcome:
    """Return the gradients of an increment with dropout, kept and computed again."""
    from models_for_tests import small_model
    from torch.utils.checkpoint import checkpoint

    from ode_transformer.speed import sublayers
    from ode_transformer.speed.training import replaced

    layer: Any = small_model(dropout=PROBABILITY, activation_dropout=PROBABILITY).float().train().encoder.layers[0]
    outcomes = {}
    for name, call in (("kept", lambda f, *x: f(*x)), ("again", partial(checkpoint, use_reentrant=False))):
        torch.manual_seed(4)
        y = torch.ones(ROWS, 16, requires_grad=True)
        with replaced(list(sublayers.faster_methods(layer))):
            call(layer.increment, y, 0, None, ("ffn",)).square().sum().backward()
        outcomes[name] = y.grad
    return outcomes


@SEVERAL_PROGRAMS
def training(by_kernels: bool, dropout: float) -> list[tuple[Tensor, dict[str, Tensor]]]:
    """Return loss and gradients of an unrecorded step, two replays, and a replay after the generator was set back."""
    from batches import PAD, batch, teacher_forced
    from graph_stand_in import RecomputingRecorder
    from models_for_tests import small_model
    from recorded_steps import build_criterion, gradients_of

    sizes = {"encoder_layers": 1, "decoder_layers": 1, "dropout": dropout, "activation_dropout": dropout}
    sizes["attention_dropout"] = dropout
    model = small_model(arch="ode_transformer_rk2", **sizes).float().train()
    source, target = batch([4, 3]), batch([3, 2], 1)
    net_input = {
        "src_tokens": source,
        "src_lengths": torch.tensor([4, 3]),
        "prev_output_tokens": teacher_forced(target),
    }
    sample = {"net_input": net_input, "target": target, "ntokens": int(target.ne(PAD).sum()), "nsentences": 2}
    steps: list[Any] = []
    with (
        patch(
            "ode_transformer.speed.kernels.is_used", lambda name, _: by_kernels and name in ("sublayers", "attention")
        ),
        patch("ode_transformer.speed.recording.build_recorder", lambda _: RecomputingRecorder()),
    ):
        criterion = build_criterion("", cuda_graphs=True)
        torch.manual_seed(3)
        for number in range(4):
            if number == 2:
                state = torch.get_rng_state()
            elif number == 3:
                torch.set_rng_state(state)
            model.zero_grad()
            loss, _, log = criterion(model, sample)
            assert log["graph_replays"] == (number > 0)
            loss.backward()
            steps.append((loss.detach(), gradients_of(model)))
    return steps
