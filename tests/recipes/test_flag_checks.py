"""fairseq's parsers, asked about single flags and whole command lines."""

from pathlib import Path

import pytest

from ode_transformer.models import fairseq_parser
from ode_transformer.recipes.flag_checks import deciding_words, flag_problem
from ode_transformer.support.errors import UserError


def problem(name: str, value: object, *words: str, program: str = "fairseq-train") -> str | None:
    return flag_problem(fairseq_parser.parser_for(program, words), name, value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("dropout", 0.1),
        ("lr", 4.94e-4),
        ("adam-betas", "(0.9, 0.98)"),
        ("share-all-embeddings", True),
        ("label-smoothing", 0.0),
        ("stop-min-lr", -1.0),
        ("max-update", 50_000),
        ("seed", 0),
    ],
)
def test_flags_of_a_training(name: str, value: object) -> None:
    words = ("--arch", "transformer", "--optimizer", "adam", "--criterion", "label_smoothed_cross_entropy")
    assert problem(name, value, *words) is None


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("droput", 0.1, "fairseq has no such flag here"),
        ("dropout", 1.5, "1.5 is not a probability in [0, 1)"),
        ("dropout", -0.1, "-0.1 is not a probability in [0, 1)"),
        ("dropout", "much", "invalid float value: 'much'"),
        ("dropout", True, "True: expected a value"),
        ("share-all-embeddings", 1, "1: expected true or false"),
        ("max-tokens", 0, "0 is not a whole number from 1 on"),
        ("max-tokens", 0.5, "invalid int value: '0.5'"),
        ("max-update", -5, "-5 is not a whole number from 1 on"),
        ("warmup-updates", -1, "-1 is not a whole number from 0 on"),
        ("lr", 0.0, "0.0 is not a positive number"),
        ("lr", "0.001x", "invalid value: '0.001x'"),
        ("lr", float("nan"), "invalid value: 'nan'"),
        ("clip-norm", -1, "-1 is not a number from 0 on"),
        ("ddp-backend", "carrier-pigeon", "invalid choice: 'carrier-pigeon'"),
    ],
)
def test_what_no_training_can_do(name: str, value: object, message: str) -> None:
    assert str(problem(name, value, "--arch", "transformer", "--lr-scheduler", "inverse_sqrt")).startswith(message)


@pytest.mark.parametrize("rates", ["0.9", "(0.9, nan)", "(0.9, 1.0)", "(0.9, 0.98, 0.9)", ""])
def test_decay_rates_of_adam(rates: str) -> None:
    assert (
        problem("adam-betas", rates, "--arch", "transformer", "--optimizer", "adam")
        == f"{rates}: expected two numbers in [0, 1)"
    )


def test_a_word_brings_its_own_flags() -> None:
    scheme = ("encoder-ode-scheme", "rk4")
    assert problem(*scheme, "--arch", "ode_transformer_rk2_tiny") is None
    assert problem(*scheme, "--arch", "transformer") == "fairseq has no such flag here"
    assert (
        problem("adam-betas", "(0.9, 0.98)", "--arch", "transformer", "--optimizer", "sgd")
        == "fairseq has no such flag here"
    )


def test_flags_of_decoding() -> None:
    assert problem("beam", 0, program="fairseq-generate") == "0 is not a whole number from 1 on"
    assert problem("lenpen", 2.0, program="fairseq-generate") is None
    assert problem("lenpen", 1000.0, program="fairseq-generate") is not None
    assert problem("lr", 0.1, program="fairseq-generate") == "fairseq has no such flag here"
    assert problem("tokens-per-sample", 512, "--task", "language_modeling", program="fairseq-eval-lm") is None


def test_a_whole_command_line() -> None:
    args = fairseq_parser.parse(
        "fairseq-train", ["data", "--arch", "macaron_tiny", "--lr", "0.1", "--update-freq", "4"]
    )
    assert (args.data, args.lr, args.update_freq, args.encoder_embed_dim) == ("data", [0.1], [4], 128)


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


@pytest.mark.parametrize("flag", ["--weight-softmax", "--adam-betas"])
def test_a_value_runs_no_code(flag: str, tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    with pytest.raises(UserError, match="is Python code, which is refused"):
        fairseq_parser.parse(
            "fairseq-train", ["data", "--arch", "lightconv", "--optimizer", "adam", flag, f"open({str(ran)!r}, 'w')"]
        )
    recipe_flag = flag.removeprefix("--")
    assert "is Python code" in str(
        problem(recipe_flag, f"open({str(ran)!r}, 'w')", "--arch", "lightconv", "--optimizer", "adam")
    )
    assert not ran.exists()


@pytest.mark.parametrize(
    "code",
    [
        # A name of fairseq's module gets a method that is code, and then a subscript.
        "[[set_torch_seed['touch {}'], 3][1] for set_torch_seed.__class_getitem__ in [os.system]]",
        "(lambda: 0)",
        "[x := 3]",
        "f'{{os}}'",
        "os.environ['HOME']",
    ],
)
def test_what_could_run_code_without_a_call_is_refused(code: str, tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    with pytest.raises(UserError, match="is Python code, which is refused"):
        fairseq_parser.parse(
            "fairseq-train", ["data", "--arch", "lightconv", "--encoder-kernel-size-list", code.format(ran)]
        )
    assert not ran.exists()


@pytest.mark.parametrize("path", ["runs/my__first__try", "a[1]", "f(x)"])
def test_files_may_be_called_anything(path: str) -> None:
    args = fairseq_parser.parse("fairseq-train", ["data", "--arch", "macaron_tiny", "--save-dir", path])
    assert args.save_dir == path


def test_no_other_folder_is_imported(tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    (tmp_path / "plugin").mkdir()
    (tmp_path / "plugin" / "__init__.py").write_text(f"open({str(ran)!r}, 'w')")
    with pytest.raises(UserError, match="--user-dir .*plugin: cannot be overridden"):
        fairseq_parser.parse("fairseq-train", ["data", "--arch", "lightconv", "--user-dir", str(tmp_path / "plugin")])
    assert not ran.exists()


def test_kinds_decide_which_flags_there_are() -> None:
    flags = {"lr": 0.1, "arch": "transformer", "optimizer": "adam", "dropout": 0.1}
    assert deciding_words(flags) == ("--arch", "transformer", "--optimizer", "adam")


def test_the_old_name_of_a_dropout_sets_it() -> None:
    words = ["data", "--arch", "ode_transformer_rk2_tiny"]
    for flags, dropout in ((["--relu-dropout", "0.3"], 0.3), (["--relu-dropout", "0"], 0.0), ([], 0.1)):
        assert fairseq_parser.parse("fairseq-train", [*words, *flags]).activation_dropout == dropout
