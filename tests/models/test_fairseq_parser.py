"""fairseq's parsers with the options of this package."""

import pytest

from ode_transformer.models import fairseq_parser
from ode_transformer.support.errors import UserError


def test_what_fairseq_refuses_is_said_in_its_words_alone(capsys) -> None:
    with pytest.raises(UserError, match="^argument --max-tokens: invalid int value: 'many'"):
        fairseq_parser.parse_training(["data", "--arch", "transformer", "--max-tokens", "many"])
    assert not capsys.readouterr().err


def test_the_old_name_of_a_dropout_sets_it() -> None:
    words = ["data", "--arch", "ode_transformer_rk2_tiny"]
    for flags, dropout in ((["--relu-dropout", "0.3"], 0.3), (["--relu-dropout", "0"], 0.0), ([], 0.1)):
        assert fairseq_parser.parse_training([*words, *flags]).activation_dropout == dropout
