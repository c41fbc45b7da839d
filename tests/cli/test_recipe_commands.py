"""Commands of recipes: an error takes one line, and --dry-run prints the commands that would run."""

import shlex
from pathlib import Path

import pytest

from ode_transformer.cli import main
from ode_transformer.recipes.options import find_recipe, recipe_names
from ode_transformer.recipes.recipe import read_recipe


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in an empty folder, on a machine without a GPU."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 0)
    return tmp_path


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """Return the last line of a command that has to fail and to leave no files."""
    try:
        status = main(words)
    except SystemExit as error:  # argparse's
        status = error.code
    assert status == 2
    assert not Path("experiments").exists()
    return capsys.readouterr().err.splitlines()[-1]


def printed(capsys: pytest.CaptureFixture[str], *words: str) -> list[list[str]]:
    """Return the commands that --dry-run prints."""
    capsys.readouterr()
    assert main([*words, "--dry-run"] if "--" not in words else words) == 0
    assert not Path("experiments").exists()
    return [shlex.split(line[2:]) for line in capsys.readouterr().out.splitlines() if line.startswith("+ ")]


def value(command: list[str], flag: str) -> str:
    return command[command.index(flag) + 1]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["train", "multi31k"],
            "train: error: multi31k: no such recipe; there are bert_pretraining, cnn_dm, gec_conll14",
        ),
        (["train", "sources"], "train: error: sources: the source list of raw files; recipes are"),
        (["prepare", "none.yaml"], "prepare: error: none.yaml: no such recipe"),
        (
            ["train", "multi30k_en_de", "--arch", "nobody"],
            "--arch nobody: no architecture for translation; ours are",
        ),
        (
            ["train", "multi30k_en_de", "--arch", "transformer_lm"],
            "--arch transformer_lm: no architecture for",
        ),
        (["train", "ptb", "--arch", "macaron"], "train: error: --arch macaron: no architecture for language_modeling"),
        (
            ["reproduce", "ptb", "--table", "Table 5"],
            "--table Table 5: not among the published results of ptb: Li et al.",
        ),
        (
            ["reproduce", "ptb", "--table", "a", "--arch", "b"],
            "--table: its systems have their own --arch and --variant",
        ),
        (["train", "wmt14_en_de", "--variant", "readme"], "train: error: --variant readme: for ode_transformer_rk2"),
        (
            ["train", "gec_conll14", "--variant", "x"],
            "x: for ode_transformer_rk2_wmt_en_de there is bea, open, released",
        ),
        (["reproduce", "ptb", "--seeds", "1,x"], "--seeds: 1,x: expected whole numbers divided by commas"),
        (["reproduce", "ptb", "--seeds", "1,2,1"], "argument --seeds: 1,2,1: a number stands twice"),
        (["train", "ptb", "--seed", "-1"], "argument --seed: -1 is not a whole number from 0 on"),
        (["train", "ptb", "--minutes", "0"], "argument --minutes: 0 is not a positive number"),
        (["evaluate", "ptb", "--average", "0"], "argument --average: 0 is not a whole number from 1 on"),
        (["train", "ptb", "--gpus", "1"], "train: error: --gpus 1: this machine has 0"),
        (["train", "ptb", "--precision", "fp16"], "train: error: --precision fp16: on the processor"),
        (["prepare", "ptb", "--", "--lr", "1"], "prepare: error: unrecognized arguments: --lr 1"),
        (["reproduce", "ptb", "--minuets", "2"], "unrecognized arguments: --minuets 2 (did you mean --minutes?)"),
        (["train", "ptb", "--", "--no-such-flag"], "train: error: unrecognized arguments: --no-such-flag"),
        (["train", "ptb", "--", "--drop-out=0.2"], "arguments: --drop-out=0.2 (did you mean --dropout?)"),
        (["train", "ptb", "--", "--lr-scheduler", "x"], "train: error: argument --lr-scheduler: invalid choice: 'x'"),
        (["train", "ptb", "--", "--save-dir", "x"], "train: error: -- --save-dir x: cannot be overridden"),
        (
            ["train", "multi30k_en_de", "--", "--label-smoothing", "5"],
            "fairseq-train: 5.0 is not a probability",
        ),
        (
            ["train", "multi30k_en_de", "--", "--max-update", "-5"],
            "--max-update of fairseq-train: -5 is not a whole number from 1 on",
        ),
        (
            ["train", "multi30k_en_de", "--", "--clip-norm", "nan"],
            "--clip-norm of fairseq-train: nan is not",
        ),
        (["train", "multi30k_en_de", "--", "--lr", "1e400"], "--lr of fairseq-train: inf is not a positive number"),
        (["train", "multi30k_en_de", "--", "--adam-betas", "(2,nan)"], "--adam-betas of fairseq-train: (2,nan): exp"),
        (["train", "multi30k_en_de", "--", "--update-freq", "0"], "--update-freq of fairseq-train: 0 is not a wh"),
        (["train", "multi30k_en_de", "--", "--no-save"], "error: -- --no-save: nothing would be left to evaluate"),
        (["train", "ptb"], "train: error: experiments/ptb/corpus: not there; ode-transformer prepare makes it"),
        (
            ["evaluate", "ptb"],
            "experiments/ptb/ode_transformer_lm_rk2/checkpoints: no checkpoint; ode-transformer train",
        ),
    ],
)
def test_what_cannot_be_done(words: list[str], message: str, capsys) -> None:
    assert message in refused(capsys, *words)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("  dropout: 0.3", "  dropout: 1.5", "train.dropout: 1.5 is not a probability in [0, 1)"),
        ("  dropout: 0.3", "  droput: 0.3", "train.droput: fairseq has no such flag here"),
        ("  dropout: 0.3", "  fp16: true", "train.fp16: the runner sets this flag"),
        ("  beam: 5", "  beam: 0", "generate.beam: 0 is not a whole number from 1 on"),
        ("  beam: 5", "  lr: 0.1", "generate.lr: fairseq has no such flag here"),
        ("arch: ode_transformer_rk2_tiny", "arch: ode_tiny", "arch: ode_tiny: no architecture for translation"),
        ("arch: ode", "colour: red\narch: ode", "colour: Extra inputs are not permitted"),
        ('  "reformer*"', '  mac: {}\n  "reformer*"', "architectures.mac: no architecture for translation has such"),
        ('  "reformer*"', '  mac*: {train: {lr: 0}}\n  "reformer*"', "architectures.mac*.train.lr: 0 is not a posi"),
        ("counts:", "variants: {v: {mac*: {train: {x: 0}}}}\ncounts:", "variants.v.mac*.train.x: fairseq has no such"),
        (
            "  - {names: [BLEU], metric: bleu, options: {tokenize: none}}",
            "  - {names: [BLEU], metric: blue, options: {tokenize: none}}",
            "metric: 'blue': known are bleu, chrf",
        ),
        ("counts:", "size: {encoder-layers: many}\ncounts:", "size.encoder-layers: invalid int value: 'many'"),
    ],
)
def test_what_is_wrong_in_a_recipe_is_named_with_its_key(old: str, new: str, message: str, capsys) -> None:
    text = find_recipe("multi30k_en_de").read_text()
    assert text.count(old) == 1
    Path("own.yaml").write_text(text.replace(old, new))
    line = refused(capsys, "train", "own.yaml", "--dry-run")
    assert message in line
    assert "own.yaml: " in line


def test_every_recipe_can_be_rehearsed(capsys) -> None:
    for name in recipe_names():
        programs = [command[0] for command in printed(capsys, "reproduce", name)]
        own, tests = read_recipe(find_recipe(name)), len(read_recipe(find_recipe(name)).sets)
        assert programs[:3] == ["fairseq-preprocess", "fairseq-train", "ode-transformer"]
        assert programs[3:] == [own.decoder] * tests + ["ode-transformer"] * len(own.score) * tests


def test_seeds_are_trainings_of_their_own(capsys) -> None:
    commands = printed(capsys, "reproduce", "multi30k_en_de", "--seeds", "3,5")
    trainings = [command for command in commands if command[0] == "fairseq-train"]
    assert [value(training, "--seed") for training in trainings] == ["3", "5"]
    assert len({value(training, "--save-dir") for training in trainings}) == 2


def test_a_variant_and_another_architecture(capsys) -> None:
    (plain,) = printed(capsys, "train", "iwslt14_de_en")
    (varied,) = printed(capsys, "train", "iwslt14_de_en", "--variant", "released")
    (macaron,) = printed(capsys, "train", "iwslt14_de_en", "--arch", "macaron_iwslt_de_en")
    assert [value(command, "--lr") for command in (plain, varied, macaron)] == ["0.0007", "0.001", "0.0015"]
    assert value(varied, "--update-freq") == "16"  # of 256 tokens
    assert "reformer_fast_iwslt_de_en-variant-released" in value(varied, "--save-dir")


def test_a_limit_of_the_recipe_can_be_switched_off(capsys) -> None:
    off = ["--max-update", "0", "--patience", "-1"]
    (command,) = printed(capsys, "train", "multi30k_en_de", "--dry-run", "--", *off)
    assert command[command.index(">") - 4 : command.index(">")] == off


def test_what_follows_the_dashes_comes_last(capsys) -> None:
    (command,) = printed(capsys, "train", "multi30k_en_de", "--dry-run", "--", "--dropout", "0.2", "--fp16")
    assert command[command.index("--tensorboard-logdir") + 2 : command.index(">")] == ["--dropout", "0.2", "--fp16"]


def test_checkpoints_to_average(capsys) -> None:
    own = printed(capsys, "evaluate", "multi30k_en_de")[0]
    Path("experiments/multi30k_en_de/ode_transformer_rk2_tiny/checkpoints").mkdir(parents=True)
    assert own[:2] == ["ode-transformer", "average"]
    assert value(own, "--last") == "10"


def test_average_replaces_the_recipes_number_in_training_and_evaluation(capsys) -> None:
    commands = printed(capsys, "reproduce", "iwslt14_de_en", "--average", "3")
    assert value(commands[1], "--keep-last-epochs") == "3"
    assert "--no-epoch-checkpoints" not in commands[1]  # as the best one alone would have it
    assert value(commands[2], "--last") == "3"


def test_a_machine_elsewhere(capsys) -> None:
    words = ["wmt14_en_de", "--gpus", "8", "--nodes", "2", "--node-rank", "1", "--master", "host:29500"]
    (command,) = printed(capsys, "train", *words)
    assert command[:2] == ["torchrun", "--nnodes=2"]
    assert command[6:8] == ["--no-python", "fairseq-train"]
    assert (value(command, "--distributed-world-size"), value(command, "--update-freq")) == ("16", "1")


def test_slurms_machines_train_and_do_nothing_else(capsys, monkeypatch) -> None:
    for name, number in {"NNODES": "2", "NODEID": "0", "NTASKS": "2"}.items():
        monkeypatch.setenv(f"SLURM_{name}", number)
    monkeypatch.setenv("SLURM_JOB_NODELIST", "node[1-2]")
    (command,) = printed(capsys, "train", "wmt14_en_de", "--gpus", "8")
    assert value(command, "--distributed-port") == "12355"
    line = refused(capsys, "reproduce", "wmt14_en_de", "--gpus", "8", "--dry-run")
    assert line == "ode-transformer reproduce: error: Slurm has started this on 2 machines: only training takes several"
