"""fairseq's parsers with the options of this package."""

import pytest

from ode_transformer.models import fairseq_parser
from ode_transformer.support.errors import UserError


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--no-such-flag"], "unrecognized arguments: --no-such-flag"),
        (["--max-tokens", "many"], "argument --max-tokens: invalid int value: 'many'"),
        (["--optimizer", "luck"], "argument --optimizer: invalid choice: 'luck'"),
    ],
)
def test_what_fairseq_refuses_is_said_in_its_words_alone(words: list[str], message: str, capsys) -> None:
    with pytest.raises(UserError) as raised:
        fairseq_parser.parse("fairseq-train", ["data", "--arch", "transformer", *words])
    assert str(raised.value).startswith(message)
    assert not capsys.readouterr().err


def test_the_old_name_of_a_dropout_sets_it() -> None:
    words = ["data", "--arch", "ode_transformer_rk2_tiny"]
    for flags, dropout in ((["--relu-dropout", "0.3"], 0.3), (["--relu-dropout", "0"], 0.0), ([], 0.1)):
        assert fairseq_parser.parse("fairseq-train", [*words, *flags]).activation_dropout == dropout


def test_a_mistyped_architecture_is_named_below_fairseqs_list(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["--arch", "ode_transformer_rk5_tiny"], ["--arch=ode_transformer_rk5_tiny"], ["--arch", "macaron"]):
        fairseq_parser.suggest_architecture(["fairseq-train", "data", *words])
    message = "--arch ode_transformer_rk5_tiny: no such architecture (did you mean ode_transformer_rk4_tiny?)\n"
    assert capsys.readouterr().err == 2 * message
