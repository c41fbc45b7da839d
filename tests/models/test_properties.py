"""Properties that every combination of parts must have, on a pairwise cover of them."""

import itertools
from argparse import Namespace
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import pytest
import torch
from batches import PAD, batch, teacher_forced
from cover_for_tests import pairs, pairwise
from models_for_tests import beam_rows, check_search, small_model
from torch.nn.functional import pad
from torch.utils._pytree import tree_leaves
from torch.utils.checkpoint import checkpoint

from ode_transformer.models import ODELanguageModel
from ode_transformer.models.architectures import complete_arguments
from ode_transformer.models.depth_options import read_model_options
from ode_transformer.models.ode_transformer import UNSUPPORTED_LM_OPTIONS, ODETransformerModel
from ode_transformer.models.reformer import ReformerModel
from ode_transformer.nn import STACKS, DepthChoice, GridChoice, Stack, WordDropout, dropout, grid_stacks, stack
from ode_transformer.nn.dropout import Dropout
from ode_transformer.numerics import RECURRENCES

CORRECTED = [name for name, entry in RECURRENCES.items() if entry.predictor is not None]
OTHER_RECURRENCES = [name for name in RECURRENCES if name not in CORRECTED]

# LayerDrop is always refused, the bias of a gate is a start, and pre-norm has an axis of its own.
EXEMPT = {"layerdrop", "forget_bias", "normalize_before"}


def axes(encoder: list[str], decoder: list[str], names: Iterable[str], **others: Sequence[Any]) -> dict[str, Any]:
    """Return schemes of the stacks, and the values of the options ``names``; ``others`` replace some."""
    found: dict[str, Sequence[Any]] = {"encoder_ode_scheme": encoder, "decoder_ode_scheme": decoder}
    for name in names:
        option = OPTIONS[name]
        for prefix in STACKS if option.own_flag_only else ("",):
            found[option.dest(prefix)] = option.samples()
    return found | others


OPTIONS = DepthChoice.options()
LSTM_PARTS = {name for name, option in OPTIONS.items() if option.group == "lstm"} - EXEMPT
ATTENTION = [name for name, option in OPTIONS.items() if option.group == "attention"]
POST_NORM = {"post_norm": [False, True]}
NORMS = {"encoder_normalize_before": [True, False], "decoder_normalize_before": [True, False]}
# One of each kind of scheme and of coefficients: tests/nn/test_scheme.py has every pair of them.
AXES = axes(
    ["euler", "rk4", "repeat"],
    ["euler", "rk2", "kutta3"],
    [name for name in OPTIONS if name not in {"scheme", *LSTM_PARTS, *EXEMPT}],
    **POST_NORM,
    ode_coefficients=["tableau", "ema", "gate", "normalised-gate", "sigmoid"],
)
# A depth-wise LSTM in both stacks, or beside residual layers.
LSTM_AXES = axes(
    ["euler", "dlstm", "rk2"],
    ["euler", "dlstm"],
    ["coefficients", "history", *ATTENTION, *sorted(LSTM_PARTS)],
    **NORMS,
    ode_coefficients=["tableau", "gate"],
)
# Recurrences over depth: all of them in the decoder, where every evaluation has a cache, beside some in the encoder.
RECURRENCE_AXES = axes(
    ["polynet", "multistep"],
    ["euler", *OTHER_RECURRENCES],
    ["normalize_step", "stage_parameters", "history", "max_relative_positions", "splitting"],
    ode_function_scope=["san+ffn", "san/ffn"],
)
# Predictors and correctors in the decoder, beside what else may be evaluated several times in the encoder.
CORRECTION_AXES = axes(
    ["repeat", "pcformer4"],
    CORRECTED,
    ["middle_layers"],
    value_residual=["none", "learned"],
    ode_coefficients=["tableau", "ema-vector"],
    ode_function_scope=["san+ffn", "san/ffn"],
    encoder_layer_history=["none"],
    decoder_layer_history=["none"],
)
# A grid's layers are stepped as all others: here are the options that meet its axes.
JOINT_AXES = axes(
    ["euler"],
    ["euler", "kutta3"],
    ["function", *ATTENTION],
    **POST_NORM,
    ode_function_scope=["san+ffn", "san/ffn"],
    ode_coefficients=["tableau", "gate"],
    decoder_layer_history=OPTIONS["history"].samples(),
    encoder_layers=[2, 0],
    # Of the examples' pairs the largest has 30 cells, another number of the last option.
    **{option.dest(): option.samples() for option in GridChoice.options().values()},
)
LANGUAGE_MODEL = "ode_transformer_lm_euler"
LANGUAGE_MODEL_AXES = {
    "decoder_ode_scheme": ["euler", "rk2", "repeat", "dlstm", "polynet"],
    "ode_function": OPTIONS["function"].samples(),
    "decoder_layer_history": OPTIONS["history"].samples(),
    "max_relative_positions": [0, 3],
    "relative_values": [False, True],
    "post_norm": [False, True],
}


def allowed(read: Callable[[Namespace], Any], parts: dict) -> bool:
    args = Namespace(**parts)
    complete_arguments(args, "ode_transformer")
    try:
        read(args)
    except ValueError:
        return False
    return True


read_language_model = partial(read_model_options, stacks=ODELanguageModel.stacks, unsupported=UNSUPPORTED_LM_OPTIONS)
COVERS = [  # the options besides, the axes, and their combinations
    (arch, axes, pairwise(axes, partial(allowed, read)))
    for arch, axes, read in (
        *(({}, axes, ODETransformerModel.read_options) for axes in (AXES, LSTM_AXES, RECURRENCE_AXES, CORRECTION_AXES)),
        ({"arch": "reformer"}, JOINT_AXES, ReformerModel.read_options),
        ({"arch": LANGUAGE_MODEL}, LANGUAGE_MODEL_AXES, read_language_model),
    )
]
PARTS = [arch | parts for arch, _, cover in COVERS for parts in cover]
JOINT_LSTM = {"arch": "reformer", "decoder_ode_scheme": "dlstm"}
PARTS += [JOINT_LSTM | {"dlstm_merge": merge} for merge in OPTIONS["merge"].samples()]
PARTS += [{"arch": "reformer", "decoder_ode_scheme": scheme} for scheme in ("multistep", "polynet", "iiet")]
PARTS += [
    {"arch": LANGUAGE_MODEL} | parts
    for parts in (
        {"decoder_ode_scheme": "multistep", "decoder_layer_history": "none"},
        {"arch": "ode_transformer_lm_pcformer", "value_residual": "learned"},
        {"arch": "ode_transformer_lm_iiet", "ode_function_scope": "san/ffn"},
    )
]
FIRST: list[dict] = []  # those that are the first of their architecture to have a value of an option
for parts in PARTS:
    values = [other.items() for other in FIRST if other.get("arch") == parts.get("arch")]
    FIRST += [parts] if parts.items() - set().union(*values) else []


@pytest.fixture(scope="module")
def model(request: pytest.FixtureRequest):
    """Return the model of a choice, in evaluation mode; all of its tests run one after the other."""
    return small_model(dropout=0.3, **request.param)


every_choice = pytest.mark.parametrize(
    "model", PARTS, ids=lambda p: "-".join(map(str, p.values())), indirect=True, scope="module"
)


def test_refusals_leave_nearly_every_pair_of_options() -> None:
    """A check that refuses too much would shrink the cover unseen."""
    for _, axes, cover in COVERS:
        possible = sum(len(one) * len(other) for one, other in itertools.combinations(axes.values(), 2))
        assert len(set().union(*map(pairs, cover))) > 0.9 * possible, list(axes)


LENGTHS, TARGETS = [6, 3, 4], [5, 7, 2]


def forward(model, source, previous):
    """Return the logits; a language model reads only the target."""
    return (model(previous) if isinstance(model, ODELanguageModel) else model(source, None, previous))[0]


def run(model, source, previous):
    with torch.no_grad():
        return forward(model, source, previous)


@pytest.fixture
def example():
    return batch(LENGTHS), teacher_forced(batch(TARGETS, seed=1))


@every_choice
def test_a_position_depends_on_what_it_may_see_alone(model, example) -> None:
    """Neither padding on either side, nor other sentences, nor later targets change it; the source does."""
    source, previous = example
    left, later, other = torch.full_like(source, PAD), previous.clone(), source.clone()
    for row, length in enumerate(LENGTHS):
        left[row, -length:] = source[row, :length]
    later[:, 3:] = torch.where(later[:, 3:] == PAD, PAD, 9)
    other[:, 0] = 28
    # fairseq's --left-pad-target: the causal mask alone would let real positions see the padding before them.
    targets = [pad(previous, (2, 0), value=PAD), pad(previous, (0, 2), value=PAD), pad(later, (0, 2), value=PAD)]
    sources = torch.cat([source, source, left, source, other])
    of_padded, *outputs = run(model, sources, torch.cat([targets[n] for n in (0, 1, 1, 2, 1)])).chunk(5)
    out, of_left, of_later, of_other = (output[:, :-2] for output in outputs)
    kept = previous.ne(PAD)
    torch.testing.assert_close(of_padded[:, 2:][kept], out[kept])
    alone = run(model, source[2:, : LENGTHS[2]], previous[2:, : TARGETS[2]])  # both sides were padded
    torch.testing.assert_close(out[2, : TARGETS[2]], alone[0])
    torch.testing.assert_close(of_left[kept], out[kept])
    torch.testing.assert_close(of_later[:, :3], out[:, :3])
    assert not torch.allclose(of_later[1, 3], out[1, 3])
    if not isinstance(model, ODELanguageModel):
        assert not torch.isclose(of_other[:, 0], out[:, 0]).all(-1).any()


@every_choice
def test_decoding_step_by_step_after_reordering_equals_the_full_pass(model, example) -> None:
    """At each step beam search replaces the rows by others; every stage's cache has to follow."""
    generator = torch.Generator().manual_seed(5)
    check_search(model, example[0], beam_rows(generator), steps=4)


@pytest.mark.parametrize("sentences", [1, 3])
@pytest.mark.parametrize("width", [1, 2, 3])
@pytest.mark.parametrize("parts", [{}, {"relative_values": True}, {"arch": "reformer"}], ids=str)
def test_retained_dropout_leaves_each_row_and_head_its_own_probabilities(
    parts: dict[str, Any], width: int, sentences: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``--retain-dropout`` whose noise happens to zero nothing changes nothing."""
    model = small_model(attention_dropout=0.3, **parts)
    for module in model.modules():
        if isinstance(module, Dropout):
            module.make_generation_fast_(retain_dropout=True)
    monkeypatch.setattr(dropout, "dropout", lambda x, probability: x)
    monkeypatch.setattr(torch.nn.functional, "dropout", lambda x, *_, **__: x)
    check_search(model, batch(LENGTHS)[:sentences], beam_rows(torch.Generator().manual_seed(5), width), steps=4)


@every_choice
def test_every_parameter_is_trained_and_recomputing_changes_no_gradient(model, example, request) -> None:
    source, previous = example
    gradients = []
    for recompute in (False, True) if request.node.callspec.params["model"] in FIRST else (False,):
        for module in model.train().modules():
            if isinstance(module, Stack):
                module.recompute = recompute  # --checkpoint-activations
        torch.manual_seed(7)
        forward(model, source, previous)[previous.ne(PAD)].square().mean().backward()
        assert [name for name, p in model.named_parameters() if p.grad is None] == []
        gradients.append(torch.cat([p.grad.flatten() for p in model.parameters()]))
        model.eval().zero_grad()
    torch.testing.assert_close(gradients[-1], gradients[0])


@pytest.mark.parametrize("parts", [{}, {"arch": "reformer", "max_joint_cells": 60}], ids=str)
def test_recomputing_shows_pytorch_a_tensor(parts, example, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a tensor among the arguments it knows the GPU whose random numbers dropout draws again; without one none."""
    shown: list[bool] = []

    def watched(function, *arguments, **options):
        shown.append(any(isinstance(leaf, torch.Tensor) for leaf in tree_leaves(arguments)))
        return checkpoint(function, *arguments, **options)

    for module in (stack, grid_stacks):
        monkeypatch.setattr(module, "checkpoint", watched)
    source, previous = example
    forward(small_model(checkpoint_activations=True, **parts).train(), source, previous)
    assert len(shown) >= 4
    assert all(shown)


def test_each_dropout_reaches_its_place() -> None:
    model = small_model(dropout=0.1, attention_dropout=0.2, activation_dropout=0.3, word_dropout_prob=0.4)
    dropouts = {name: m for name, m in model.named_modules() if isinstance(m, (Dropout, WordDropout))}
    expected = {"encoder.word_dropout": 0.4, "decoder.word_dropout": 0.4}
    expected |= {"encoder.dropout_module": 0.1, "decoder.dropout_module": 0.1}
    for name, sublayers in (("encoder", ("self_attn", "ffn")), ("decoder", ("self_attn", "encoder_attn", "ffn"))):
        for layer in range(2):
            for sublayer in sublayers:
                place = f"{name}.layers.{layer}.{sublayer}"
                expected[f"{place}.dropout"] = 0.1
                expected[f"{place}.function.dropout"] = 0.3 if sublayer == "ffn" else 0.2
    assert {name: module.probability for name, module in dropouts.items()} == expected


def test_parameters_say_what_they_were_trained_for_however_they_are_loaded() -> None:
    """Arithmetic with a checkpoint's tensors, as for a mean, leaves it readable."""
    model, other = small_model(encoder_ode_scheme="rk4"), small_model(encoder_ode_scheme="rk2")
    state = model.state_dict()
    with pytest.raises(ValueError, match="encoder: trained with scheme rk4; this model has scheme heun: decode with"):
        other.load_state_dict(state)
    part = {name.removeprefix("encoder."): tensor for name, tensor in state.items() if name.startswith("encoder.")}
    with pytest.raises(ValueError, match="encoder: trained with scheme rk4"):
        other.encoder.load_state_dict(part)
    key = "encoder.trained_version._extra_state"
    summed = sum(state[key] for _ in range(5)) // 5
    model.load_state_dict(state | {key: summed})
    model.load_state_dict(state | {key: state[key].float()})
    model.load_state_dict({name: tensor for name, tensor in state.items() if name != key})


def test_parameters_belong_to_options_that_do_not_show_in_them() -> None:
    schemes = {"encoder_ode_scheme": "dlstm", "decoder_ode_scheme": "dlstm"}
    for options, name, values in (
        (schemes, "dlstm_first_cell", ("zero", "embedding")),
        ({"arch": "reformer"}, "joint_input", ("released", "paper")),
    ):
        trained, other = (small_model(**options, **{name: value}) for value in values)
        with pytest.raises(ValueError, match=f"trained with .*{values[0]}.* {values[1]}"):
            other.load_state_dict(trained.state_dict())
        trained.load_state_dict(trained.state_dict())


def test_the_last_stage_reports_its_attention(example) -> None:
    """With γ = b of midpoint, (0, 1), the last stage alone moves the layer."""
    model, (source, previous) = small_model(decoder_ode_scheme="midpoint"), example
    weights: list[torch.Tensor] = []
    model.decoder.layers[1]["encoder_attn"].function.register_forward_pre_hook(
        lambda _, inputs, options: (inputs, options | {"weights": weights}), with_kwargs=True
    )
    with torch.no_grad():
        first, last = (model(source, None, previous), weights)[1]
    model.decoder.layers[1]["encoder_attn"].function._forward_pre_hooks.clear()
    extra = model(source, None, previous)[1]
    assert not torch.allclose(first, last)
    torch.testing.assert_close(extra["attn"][0], last.mean(dim=1))
