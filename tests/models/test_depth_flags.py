"""Flags of depth: one rule for two stacks, and an option that is declared in one place."""

import argparse
from dataclasses import dataclass

import pytest
from generator.flags import flag_row
from models_for_tests import small_model

from ode_transformer.export.ctranslate2_folder import stack_refusal
from ode_transformer.models import depth_options
from ode_transformer.models.ode_transformer import ODETransformerModel
from ode_transformer.nn import STACKS, DepthChoice, model_options, option, read_choices
from ode_transformer.support.errors import OptionError

GATE = {"ode_coefficients": "gate"}
PLAIN = {"encoder_layers": 2, "decoder_layers": 2, "ode_options_saved": False}
RK2 = {"encoder_ode_scheme": "rk2", "decoder_ode_scheme": "rk2"}


def values(name: str, **options: object) -> list[object]:
    """Return an option of the encoder's choice and of the decoder's."""
    choices = read_choices(PLAIN | options, STACKS)
    return [choice.value(choice.options()[name]) for choice in choices.values()]


@pytest.mark.parametrize(
    ("name", "options", "expected"),
    [
        ("coefficients", {**RK2, **GATE}, ["gate", "gate"]),
        ("coefficients", {**RK2, **GATE, "decoder_ode_coefficients": "ones"}, ["gate", "ones"]),
        ("coefficients", {**RK2, **GATE, "encoder_ode_coefficients": "tableau"}, ["tableau", "gate"]),
        ("coefficients", {"encoder_ode_scheme": "rk2", **GATE, "decoder_ode_scheme": "euler"}, ["gate", "tableau"]),
        ("coefficients", {"encoder_ode_scheme": "rk2", **GATE, "decoder_ode_scheme": "leapfrog"}, ["gate", "tableau"]),
        ("coefficients", {"encoder_ode_scheme": "rk2", **GATE, "decoder_ode_scheme": "rk4"}, ["gate", "gate"]),
        # The length of a single stage is for the flag of its stack, whatever the other stack has.
        ("coefficients", {"encoder_ode_scheme": "rk2", "ode_coefficients": "scalar"}, ["scalar", "tableau"]),
        ("coefficients", {"encoder_ode_coefficients": "scalar"}, ["scalar", "tableau"]),
        ("coefficients", {"ode_coefficients": "scalar", "ode_options_saved": True}, ["scalar", "scalar"]),  # of before
        ("stage_parameters", {"decoder_ode_scheme": "rk4", "ode_stage_parameters": "separate"}, ["shared", "separate"]),
        ("first_cell", {"encoder_ode_scheme": "dlstm", "dlstm_first_cell": "learned"}, ["learned", "zero"]),
        ("function", {"encoder_ode_scheme": "leapfrog", "ode_function": "layer-output"}, ["increment", "layer-output"]),
        ("normalize_step", {"ode_normalize_step": True, "encoder_ode_normalize_step": False}, [False, True]),
        ("max_relative_positions", {"max_relative_positions": 8, "decoder_max_relative_positions": 0}, [8, 0]),
        ("step_size", {"ode_step_size": 2}, [2.0, 2.0]),  # Python code may give a whole number
    ],
)  # fmt: skip
def test_a_short_flag_is_for_the_stacks_that_use_it_and_a_stacks_own_flag_comes_first(
    name: str, options: dict, expected: list
) -> None:
    found = values(name, **options)
    assert found == expected
    assert [type(value) for value in found] == [type(value) for value in expected]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"encoder_ode_scheme": "leapfrog", "decoder_ode_scheme": "dlstm", "ode_coefficients": "gate"},
            "--ode-coefficients gate: only with a scheme whose stages have weights, .*; pass --ode-coeff",
        ),
        (
            {**RK2, "ode_share_coefficients": True},
            "--ode-share-coefficients: only with learned coefficients; pass --no",
        ),
        ({"decoder_ode_scheme": "multistep", "decoder_layer_history": "dlcl"}, "--decoder-layer-history none for a de"),
        ({"ode_coefficients": "scalar"}, "--ode-coefficients scalar: only with .* the name of a stack in front"),
    ],
)
def test_a_flag_that_no_stack_can_use_is_refused(options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        values("scheme", **options)


@dataclass(frozen=True)
class Louder(DepthChoice):
    loud: bool = option(False, "made up", read_by=lambda c: c.stages > 1, needs="a scheme of several stages")


def test_a_made_up_option_is_declared_in_one_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """Flags, default, checks, settings in checkpoints, limits of the export, page and axis follow from the field."""
    plain = small_model(encoder_ode_scheme="rk2").state_dict()
    for module in (depth_options, model_options):
        monkeypatch.setattr(module, "DepthChoice", Louder)
    parser = argparse.ArgumentParser(argument_default=argparse.SUPPRESS)
    ODETransformerModel.add_args(parser)
    given = parser.parse_args(["--encoder-ode-scheme", "rk2", "--ode-loud", "--no-decoder-ode-loud"])
    assert (given.ode_loud, given.decoder_ode_loud) == (True, False)
    model = small_model(**vars(given))
    assert (model.encoder.choice.loud, model.decoder.choice.loud) == (True, False)
    for options, message in (
        ({"ode_loud": True}, "--ode-loud: only with a scheme of several stages; pass --no-ode-loud"),
        ({"decoder_ode_loud": True}, "--decoder-ode-loud: only with a scheme of several stages, not with euler"),
    ):
        with pytest.raises(OptionError, match=message):
            small_model(**options)
    with pytest.raises(ValueError, match="encoder: trained with loud True; this model has loud False"):
        small_model(encoder_ode_scheme="rk2").load_state_dict(model.state_dict())
    small_model(encoder_ode_scheme="rk2").load_state_dict(plain)  # of a time without the option
    assert "--ode-loud True, only False" in str(stack_refusal(model.encoder.choice, "encoder"))
    action = next(action for action in parser._actions if action.dest == "ode_loud")
    assert flag_row(action, {"arch": {"ode_loud": False}}) == ("`--ode-loud`", "", "off", "made up")
    assert Louder.options()["loud"].samples() == (False, True)


@dataclass(frozen=True)
class Numbers(DepthChoice):
    count: int = option(0, "made up")
    length: float = option(0.0, "made up")
    width: float = option(1.0, "made up", interval="non-negative")
    share: float = option(0.0, "made up", interval="fraction")


@pytest.mark.parametrize(
    ("flag", "allowed", "refused"),
    [
        ("--ode-count", "-3", "0.5 is not a whole number"),
        ("--ode-length", "-0.5", "inf is not a number"),
        ("--decoder-ode-width", "0", "-1 is not a number from 0 on"),
        ("--ode-share", "0.5", "1 is not a probability"),
        ("--log-samples", "0", "-1 is not a whole number from 0 on"),
        ("--word-dropout-prob", "0.1", "1.5 is not a probability"),
    ],
)
def test_a_number_has_the_flag_of_its_kind_and_interval(
    flag: str, allowed: str, refused: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(depth_options, "DepthChoice", Numbers)
    parser = argparse.ArgumentParser(argument_default=argparse.SUPPRESS)
    depth_options.add_depth_arguments(parser, STACKS)
    assert vars(parser.parse_args([flag, allowed])) == {flag[2:].replace("-", "_"): float(allowed)}
    with pytest.raises(SystemExit):
        parser.parse_args([f"{flag}={refused.split()[0]}"])
    assert refused in capsys.readouterr().err


def test_only_a_model_with_a_decoder_logs_probabilities() -> None:
    parser = argparse.ArgumentParser()
    depth_options.add_depth_arguments(parser, ("encoder",))
    flags = parser._option_string_actions
    assert ("--post-norm" in flags, "--log-depth-interval" in flags, "--log-samples" in flags) == (True, False, False)
