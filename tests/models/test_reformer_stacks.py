"""What is particular to joint layers; what all stacks have in common is tested in test_properties.py."""

import pytest
import torch
from batches import PAD, batch, teacher_forced
from models_for_tests import small_model
from torch import Tensor

from ode_transformer.nn.dropout import Dropout

LENGTHS, TARGETS = [6, 3, 4], [5, 7, 2]  # grids of 30, 21 and 8 positions


def example() -> tuple[Tensor, Tensor]:
    return batch(LENGTHS), teacher_forced(batch(TARGETS, seed=1))


def reformer(**options: object):
    return small_model(arch="reformer", **options)


@pytest.mark.parametrize("layers", [0, 2])
@pytest.mark.parametrize("how", ["paper", "released"])
def test_the_cells_are_those_of_equation_4(how: str, layers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    model, (source, previous) = reformer(joint_input=how, encoder_layers=layers), example()
    seen: list[Tensor] = []
    through = model.decoder.step_layers
    monkeypatch.setattr(model.decoder, "step_layers", lambda y0, *more: (seen.append(y0), through(y0, *more))[1])
    with torch.no_grad():
        model(source, None, previous)
        e_source, e_target = model.encoder.embed_tokens(source), model.decoder.embed_tokens(previous)
        p_source, p_target = (model.encoder.embed_positions(tokens) for tokens in (source, previous))
        if layers:
            words = model.encoder.embed_words(source)
            y0 = model.encoder.add_positions(words, model.encoder.positions(source))
            scale = 4 if how == "paper" else 1
            torch.testing.assert_close(y0, 4 * e_source + scale * p_source)
            prenet_states = model.encoder(source, None, return_all_hiddens=True)["encoder_states"]
            e_source = model.encoder.layer_norm(prenet_states[-1].transpose(0, 1))  # embed_s is replaced
        if how == "paper":
            x = 4 * (e_source[:, :, None] + e_target[:, None] + p_source[:, :, None] + p_target[:, None])
        elif layers:
            x = e_source[:, :, None] + (4 * e_target + p_target)[:, None]
        else:
            x = (4 * e_source + p_source)[:, :, None] + (4 * e_target + p_target)[:, None]
    real = source.ne(PAD)[:, :, None] & previous.ne(PAD)[:, None]
    torch.testing.assert_close(seen[0][real], x[real])


def gradients(model, source: Tensor, previous: Tensor) -> tuple[Tensor, list[Tensor]]:
    logits = model.train()(source, None, previous)[0]
    logits[previous.ne(PAD)].square().mean().backward()
    return logits[previous.ne(PAD)].detach(), [p.grad for p in model.parameters()]


@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("positions", [30, 45, 84])
def test_parts_of_a_batch_change_no_logit_and_no_gradient(positions: int, recompute: bool) -> None:
    source, previous = example()
    expected = gradients(reformer(), source, previous)
    parted = reformer(max_joint_cells=positions, checkpoint_activations=recompute)
    spans: list[int] = []
    parted.decoder.reduction.register_forward_pre_hook(lambda _, inputs: spans.append(inputs[0][..., 0].numel()))
    got = gradients(parted, source, previous)
    assert max(spans) <= positions
    assert len(spans) == {30: 6, 45: 6, 84: 4}[positions]  # forward, and again in the backward pass
    torch.testing.assert_close(got[0], expected[0])
    for ours, other in zip(got[1], expected[1], strict=True):
        torch.testing.assert_close(ours, other)


def test_parts_draw_the_noise_of_dropout_once() -> None:
    """What the backward pass computes again is what the forward pass computed: a numerical derivative agrees."""
    model, (source, previous) = reformer(max_joint_cells=30, dropout=0.5).train(), example()
    weight = model.decoder.layers[0]["ffn_target"].function.fc2.bias

    def loss() -> Tensor:
        torch.manual_seed(3)
        return model(source, None, previous)[0][previous.ne(PAD)].sum()

    loss().backward()
    step = torch.zeros_like(weight)
    step[5] = 1e-6
    with torch.no_grad():
        weight.add_(step)
        after = loss()
        weight.sub_(2 * step)
        before = loss()
    torch.testing.assert_close((after - before) / 2e-6, weight.grad[5], rtol=1e-5, atol=1e-5)


def test_a_pair_that_is_too_large_ends_the_training_and_not_the_evaluation() -> None:
    model, (source, previous) = reformer(max_joint_cells=29), example()
    with torch.no_grad():
        torch.testing.assert_close(model(source, None, previous)[0][previous.ne(PAD)],
                                   reformer()(source, None, previous)[0][previous.ne(PAD)])  # fmt: skip
    with pytest.raises(ValueError, match="has 30 grid positions, more than --max-joint-cells 29: raise it, or"):
        model.train()(source, None, previous)


def noise_axes(model) -> dict[str, tuple[int, ...]]:
    layer = model.decoder.layers[0]
    return {name: module.shared for name, module in layer.named_modules() if isinstance(module, Dropout)}


def test_each_noise_is_shared_along_the_axes_of_figure_2() -> None:
    source_axis, target_axis = 1, 2
    assert noise_axes(reformer()) == {
        "self_attn_target.dropout": (source_axis,),
        "self_attn_target.function.dropout": (1,),  # of the weights [B, lines, H, T, T]
        "ffn_target.dropout": (source_axis, target_axis),
        "ffn_target.function.dropout": (source_axis, target_axis),
        "self_attn_source.dropout": (target_axis,),
        "self_attn_source.function.dropout": (1,),
        "ffn_source.dropout": (source_axis, target_axis),
        "ffn_source.function.dropout": (source_axis, target_axis),
    }
    assert set(noise_axes(reformer(joint_dropout="independent")).values()) == {()}
    prenet = [module for module in reformer().encoder.modules() if isinstance(module, Dropout)]
    assert prenet
    assert all(module.shared == () for module in prenet)
