"""A training that an earlier version began goes on, and fairseq reads its checkpoints as we do."""

from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import torch
from batches import batch, split_projections, teacher_forced
from changed_checkpoints import rewrite
from fairseq import checkpoint_utils
from fairseq.optim import FairseqOptimizer, FP16Optimizer, MemoryEfficientFP16Optimizer
from models_for_tests import SMALL, build_model
from plain_models import make_plain_model
from recorded_steps import build_optimizer

from ode_transformer.checkpoints.parameters import upgrade_checkpoint
from ode_transformer.checkpoints.reading import load_checkpoint
from ode_transformer.decoding.teacher_forcing import log_probabilities


def optimizer(name: str, wrapper: Any, parameters: dict[str, torch.Tensor]) -> FairseqOptimizer:
    return build_optimizer(name, wrapper, list(parameters.values()), flat=True)


def trained(model: torch.nn.Module, wrapper: Any) -> dict[str, torch.Tensor]:
    dtype = torch.float16 if wrapper else torch.float32
    return {name: p.detach().to(dtype).clone().requires_grad_() for name, p in model.named_parameters()}


def update(optimizer: Any, parameters: dict[str, torch.Tensor], begin: int, end: int, older: bool) -> None:
    """Updates with gradients that belong to today's names."""
    for number in range(begin, end):
        generator = torch.Generator().manual_seed(number)
        gradients = {name: torch.randn(shape, generator=generator) for name, shape in SHAPES.items()}
        gradients = split_projections(gradients) if older else gradients
        optimizer.zero_grad()
        loss = sum((parameters[name].float() * gradient).sum() for name, gradient in gradients.items())
        optimizer.backward(loss)
        optimizer.multiply_grads(0.25)
        optimizer.clip_grad_norm(1.0)
        optimizer.step()


MODEL = build_model("ode_transformer_rk2", **(SMALL | {"encoder_layers": 1, "decoder_layers": 1}))
SHAPES = {name: parameter.shape for name, parameter in MODEL.named_parameters()}


@pytest.mark.parametrize("name", ["adam", "fused_adam"])
@pytest.mark.parametrize("wrapper", [None, FP16Optimizer, MemoryEfficientFP16Optimizer])
def test_a_training_goes_on_with_the_moments_of_the_same_numbers(name: str, wrapper: Any) -> None:
    whole = trained(MODEL, wrapper)
    straight = optimizer(name, wrapper, whole)
    update(straight, whole, 0, 6, older=False)

    first = {n: p.detach().clone().requires_grad_() for n, p in split_projections(trained(MODEL, wrapper)).items()}
    begun = optimizer(name, wrapper, first)
    update(begun, first, 0, 3, older=True)
    # Tied embeddings have two names in a model's state, and buffers are in it, too.
    state = {"model": split_projections(MODEL.state_dict()) | first, "last_optimizer_state": begun.state_dict()}
    state["model"]["decoder.embed_tokens.weight"] = first["encoder.embed_tokens.weight"]
    state["model"]["decoder.output_projection.weight"] = first["encoder.embed_tokens.weight"]
    upgraded = upgrade_checkpoint(deepcopy(state))
    second = {n: upgraded["model"][n].detach().clone().requires_grad_() for n in whole}
    resumed = optimizer(name, wrapper, second)
    resumed.load_state_dict(upgraded["last_optimizer_state"], resumed.optimizer_config)
    update(resumed, second, 3, 6, older=False)
    precision = {"rtol": 1e-2, "atol": 2e-3} if wrapper else {"rtol": 1e-5, "atol": 1e-6}
    for parameter in whole:
        torch.testing.assert_close(second[parameter], whole[parameter], **precision)


def test_fairseq_reads_what_we_read(tmp_path: Path) -> None:
    make_plain_model(tmp_path)
    path = rewrite(tmp_path, lambda state: state.update(model=split_projections(state["model"])))
    theirs, ours = checkpoint_utils.load_checkpoint_to_cpu(str(path)), load_checkpoint(path)
    assert list(theirs["model"]) == list(ours["model"])
    assert "encoder.layers.0.self_attn.function.in_proj.weight" in ours["model"]


@torch.no_grad()
def test_no_pass_moves_a_parameter() -> None:
    """Training, validation, search and the pass of an export read a parameter where it stands, as a graph does."""
    model = build_model("ode_transformer_rk2", **SMALL)
    source, target = batch([6, 9]), teacher_forced(batch([5, 7], seed=1))
    places = {name: parameter.data_ptr() for name, parameter in model.named_parameters()}
    for training in (True, False):
        with torch.set_grad_enabled(training):
            model.train(training)(source, source.ne(1).sum(1), target)
    log_probabilities(model, {"src_tokens": source, "src_lengths": source.ne(1).sum(1), "prev_output_tokens": target})
    state: dict[str, Any] = {}
    encoder_out = model.encoder(source, None)
    for length in (1, 2):
        model.decoder(target[:, :length], encoder_out=encoder_out, incremental_state=state)
        model.decoder.reorder_incremental_state_scripting(state, torch.tensor([1, 0]))
    assert {name: parameter.data_ptr() for name, parameter in model.named_parameters()} == places
