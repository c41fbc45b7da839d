"""fairseq's parsers with the options of this package."""

import pytest

from ode_transformer.models import fairseq_parser
from ode_transformer.support.errors import UserError


def test_a_whole_command_line() -> None:
    words = ["data", "--arch", "macaron_tiny", "--lr", "0.1", "--update-freq", "4", "--save-dir", "a[1]"]
    args = fairseq_parser.parse("fairseq-train", words)
    assert (args.data, args.lr, args.update_freq, args.encoder_embed_dim) == ("data", [0.1], [4], 128)
    assert args.save_dir == "a[1]"


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
