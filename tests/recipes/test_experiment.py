"""The commands of an experiment, the names of its runs, and what makes it the same training."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from ode_transformer.metrics.metric import Score
from ode_transformer.models.criteria import COUNTERPARTS
from ode_transformer.recipes import run_experiment, workflow
from ode_transformer.recipes.experiment import Experiment
from ode_transformer.recipes.machine import Machine
from ode_transformer.recipes.options import RunOptions
from ode_transformer.recipes.preparation import RecipeData
from ode_transformer.recipes.recipe import Average, read_recipe
from ode_transformer.recipes.recipe_files import find_recipe
from ode_transformer.recipes.training import TrainingRecord
from ode_transformer.support.errors import UserError
from ode_transformer.support.files import lock_directory
from ode_transformer.support.jobs import Jobs

Words = list[str]


def made(name: str, folder: Path = Path("data"), arch: str | None = None, **more: Any) -> Experiment:
    recipe = read_recipe(find_recipe(name)).for_arch(arch, more.get("variant"))
    return Experiment(recipe, RecipeData(recipe, folder), **({"machine": Machine(1, "fp16")} | more))


def value(command: list[str | Path], flag: str) -> str:
    return str(command[command.index(flag) + 1])


# -- commands -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("machine", "flags"),
    [
        (Machine(0), ["--cpu"]),
        (Machine(1), []),
        (Machine(8, "fp16"), ["--fp16"]),
        (Machine(8, "bf16", 2, 1, "host:1"), ["--bf16"]),
    ],
)
@pytest.mark.parametrize("name", ["multi30k_en_de", "ptb"])
def test_decoding_takes_one_gpu_however_many_train(name: str, machine: Machine, flags: Words) -> None:
    command = made(name, machine=machine).decode_command("test")
    assert value(command, "--distributed-world-size") == "1"
    assert [flag for flag in ("--cpu", "--fp16", "--bf16") if flag in command] == flags


@pytest.mark.parametrize("name", ["multi30k_en_de", "ptb"])
def test_the_fused_forms_resume_a_training_with_fairseqs_own(name: str, tmp_path: Path) -> None:
    run = made(name)
    fairseqs = {flag: COUNTERPARTS[str(run.recipe.train[flag])] for flag in ("optimizer", "criterion")}
    begun = replace(run, recipe=run.recipe.model_copy(update={"train": run.recipe.train | fairseqs}))
    data = Jobs(tmp_path, "prepared")
    assert run.digest(data) == begun.digest(data)
    assert run.digest(data) != replace(run, train_flags=("--lr", "1")).digest(data)


def test_commands_of_a_translation() -> None:
    run = made("wmt14_en_de")
    assert [command[0] for command in run.evaluation_commands()] == [
        *("ode-transformer", "fairseq-generate", "ode-transformer", "ode-transformer")
    ]
    average, decode, flavoured, raw = run.evaluation_commands()
    assert (value(average, "--last"), value(average, "--by")) == ("5", "epoch")
    assert [value(decode, flag) for flag in ("--remove-bpe", "--beam", "--lenpen")] == ["subword_nmt", "4", "0.6"]
    assert {value(score, "--references") for score in (flavoured, raw)} == {"data/corpus/raw.test.de"}
    assert value(flavoured, "--flavour") == "get_ende_bleu"
    assert value(raw, "--detokenize") == "de"


@pytest.mark.parametrize(
    ("recipe", "arch", "variant"),
    [
        ("wmt14_en_de", "dlstm_wmt_en_de", None),
        ("wmt14_en_de", "ode_transformer_euler_wmt_en_de", "xu_2020"),
        ("wmt14_en_fr", "dlstm_wmt_en_de", None),
        ("wmt15_cs_en", "dlstm_wmt_en_de", None),
    ],
)
def test_systems_of_the_depth_wise_lstm_are_scored_with_whole_compounds(recipe: str, arch: str, variant) -> None:
    run = made(recipe, arch=arch, variant=variant)
    score = run.score_command(run.recipe.score[0], "test")
    assert value(score, "--tokenize") == "none"
    assert not {"--compound-split", "--flavour", "--detokenize"} & set(score)
    assert not (run.recipe.corpus.test_text or run.recipe.corpus.text).split_dashes
    assert run.recipe.generate["lenpen"] == 0


def test_commands_of_a_language_model() -> None:
    run = made("ptb")
    average, valid, test, score_valid, score_test = run.evaluation_commands()
    assert str(average[2]).endswith("checkpoints/checkpoint_best.pt")
    assert [value(command, "--gen-subset") for command in (valid, test)] == ["valid", "test"]
    assert valid[0] == "fairseq-eval-lm"
    assert not {"--remove-bpe", "--source-lang"} & set(valid)
    assert value(score_valid, "--eval-lm-log") == str(run.decode_log("valid"))
    assert value(score_test, "--references") == "data/corpus/test.txt"


def test_commands_of_a_correction() -> None:
    assert value(made("gec_conll14").evaluation_commands()[-1], "--gold") == "data/corpus/test.m2"


def test_references_of_several_translators() -> None:
    run = made("nist_zh_en")
    command = run.score_command(run.recipe.score[0], "test")
    start = command.index("--references") + 1
    assert [Path(path).name for path in command[start:-1]] == ["test.en", *(f"tokens{n}.test.en" for n in (1, 2, 3))]


def test_a_validation_set_out_of_the_training_text_has_its_references_in_the_log() -> None:
    run = made("iwslt14_de_en")
    assert "--references" not in run.score_command(run.recipe.score[0], "valid")
    assert "--references" in run.score_command(run.recipe.score[0], "test")


@pytest.mark.parametrize(
    ("there", "until", "count"),
    [(range(1, 13), None, 10), (range(1, 13), 4, 4), (range(1, 4), None, 3)],
)
def test_fewer_checkpoints_than_asked_for(tmp_path: Path, there, until, count: int) -> None:
    run = made("multi30k_en_de", tmp_path)
    run.checkpoints.mkdir(parents=True)
    for number in there:
        (run.checkpoints / f"checkpoint{number}.pt").touch()
    assert value(run.average_command(until), "--last") == str(count)
    shortfall = f"{run.checkpoints}: {count} of the 10 epoch checkpoints to be averaged"
    assert run.average_shortfall(until) == (shortfall if count < 10 else "")


def test_an_evaluation_says_that_checkpoints_are_missing(tmp_path: Path, monkeypatch, capsys) -> None:
    run = made("multi30k_en_de", tmp_path)
    run.checkpoints.mkdir(parents=True)
    (run.checkpoints / "checkpoint1.pt").touch()
    monkeypatch.setattr(RecipeData, "prepared_jobs", lambda data: Jobs(data.folder, "prepared"))
    monkeypatch.setattr(RecipeData, "splits", lambda data: list(run.recipe.sets))
    monkeypatch.setattr(RecipeData, "model_files", [])
    monkeypatch.setattr(run_experiment, "_evaluation_jobs", lambda *_: ())
    monkeypatch.setattr(run_experiment, "_read_scores", lambda _: {})
    TrainingRecord(run.folder).write(run.digest(run.data.prepared_jobs()))
    run_experiment.evaluate(run)
    assert capsys.readouterr().out == f"{run.average_shortfall()}\n"


def test_an_average_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    run = replace(made("ptb", tmp_path), recipe=workflow.load_recipe("ptb", RunOptions(average=5)))
    run.checkpoints.mkdir(parents=True)
    for name in ("checkpoint_best.pt", "checkpoint_last.pt"):
        (run.checkpoints / name).touch()
    with pytest.raises(UserError, match="--average 5: .*checkpoints has no checkpoint of an epoch"):
        workflow.evaluate(run, RunOptions(average=5))


def test_no_checkpoint_of_an_epoch(tmp_path: Path) -> None:
    run = made("multi30k_en_de", tmp_path)
    run.checkpoints.mkdir(parents=True)
    assert value(run.average_command(), "--last") == "10"  # as before the training, whose first update is still to come
    (run.checkpoints / "checkpoint_best.pt").touch()
    with pytest.raises(UserError, match="no checkpoint of an epoch; train first, or for longer"):
        run.average_command()
    (run.checkpoints / "checkpoint_last.pt").touch()  # stopped by the clock within the first
    assert str(run.average_command()[2]).endswith("checkpoint_last.pt")
    assert run.average_shortfall().endswith(
        "0 of the 10 epoch checkpoints to be averaged; the model is the last one, no average"
    )


@pytest.mark.parametrize(
    ("flags", "last"),
    [((), 8000), (("--max-update", "9"), 9), (("--max-update=100000",), 100000), (("--max-update", "0"), None)],
)
def test_the_last_update_is_that_of_fairseqs_parser(flags: tuple[str, ...], last: int | None) -> None:
    assert made("multi30k_en_de", train_flags=flags).last_update() == last


def test_the_recipes_size_and_the_architectures_own_have_a_folder_each() -> None:
    runs = [made("quickstart_text", arch=arch) for arch in (None, "ode_transformer_rk2_tiny", "macaron_tiny")]
    assert [run.folder.name for run in runs] == [
        *("ode_transformer_rk2_tiny", "ode_transformer_rk2_tiny-own-size", "macaron_tiny"),
    ]
    assert len({run.table_path for run in runs}) == 3


# -- runs ---------------------------------------------------------------------------------------------------------


def test_names_of_runs() -> None:
    names = [
        made("iwslt14_de_en").folder,
        made("iwslt14_de_en", arch="macaron_iwslt_de_en").folder,
        made("iwslt14_de_en", variant="released").folder,
        made("iwslt14_de_en", seed=3).folder,
        made("iwslt14_de_en", train_flags=("--dropout", "0.2")).folder,
        made("iwslt14_de_en", train_flags=("--max-epoch", "-3", "-s", "de")).folder,
    ]
    assert [path.name for path in names] == [
        "reformer_fast_iwslt_de_en",
        "macaron_iwslt_de_en",
        "reformer_fast_iwslt_de_en-variant-released",
        "reformer_fast_iwslt_de_en-seed-3",
        "reformer_fast_iwslt_de_en-dropout-0.2",
        "reformer_fast_iwslt_de_en-max-epoch--3-s-de",
    ]


@pytest.mark.parametrize("more", [{"machine": Machine(8, "fp16")}, {"minutes": 5.0}, {"max_tokens": 1000}])
def test_another_machine_or_more_minutes_are_the_same_run(more: dict[str, Any]) -> None:
    assert made("iwslt14_de_en", **more).folder == made("iwslt14_de_en").folder


@pytest.fixture
def train(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Words]:
    """Trains with a stand-in for fairseq that leaves a checkpoint; returns its command."""
    calls: list[Words] = []
    checkpoints = made("multi30k_en_de", tmp_path).checkpoints

    def run(command: list[str | Path], log: Path, progress: object = None, append: bool = False, **_: Any) -> None:
        assert log.parent.is_dir()
        calls.append([*map(str, command), f"append={append}", log.name])
        if log.name == "train.log":  # the first machine's processes save
            checkpoints.mkdir(exist_ok=True)
            (checkpoints / "checkpoint1.pt").touch()

    monkeypatch.setattr(run_experiment.commands, "run", run)
    monkeypatch.setattr(RecipeData, "prepared_jobs", lambda data: Jobs(data.folder, "prepared"))

    def start(**more: Any) -> Words:
        experiment = made("multi30k_en_de", tmp_path, **more)
        assert experiment.checkpoints == checkpoints
        calls.clear()
        run_experiment.train(experiment)
        return calls[0] if calls else []

    return start


def test_a_finished_training_is_not_begun_again(train) -> None:
    assert train()[-2:] == ["append=False", "train.log"]
    assert train() == []


@pytest.mark.parametrize(
    "more",
    [
        {"machine": Machine(8, "fp16")},
        {"machine": Machine(0)},
        {"machine": Machine(8, "bf16", 2, 0, "host:1")},
        {"minutes": 90.0},
        {"max_tokens": 512},
    ],
)
def test_another_machine_or_more_minutes_go_on_from_the_checkpoints(
    train, tmp_path: Path, more: dict[str, Any]
) -> None:
    train()
    if "minutes" not in more:
        assert train(**more) == []  # what has ended stays ended
        next(tmp_path.rglob("train.done")).unlink()  # as if it had been stopped
    assert train(**more)[-2] == "append=True"


def test_another_recipe_is_another_training(train, monkeypatch) -> None:
    train()
    recipe = read_recipe(find_recipe("multi30k_en_de"))
    for change in ({"tokens_per_update": 4096}, {"train": recipe.train | {"dropout": 0.2}}):
        changed = recipe.model_copy(update=change)
        monkeypatch.setattr("test_experiment.read_recipe", lambda path, changed=changed: changed)
        with pytest.raises(UserError, match="of a training with other flags or data"):
            train()


def test_other_data_are_another_training(train, tmp_path: Path, monkeypatch) -> None:
    train()
    monkeypatch.setattr(RecipeData, "prepared_jobs", lambda data: Jobs(data.folder, "other"))
    (record,) = tmp_path.rglob("experiment.json")
    record.write_text("that of the other training")
    with pytest.raises(UserError, match="of a training with other flags or data"):
        train()
    assert record.read_text() == "that of the other training"


def test_further_machines_leave_the_record_to_the_first(train, tmp_path: Path) -> None:
    second = Machine(8, "fp16", 2, 1, "host:1")
    command = train(machine=second)
    assert command[-1] == "train.node1.log"
    assert not list(tmp_path.rglob("train.begun"))
    assert train(machine=replace(second, rank=0))[-1] == "train.log"


def test_a_small_recipe_trains_with_one_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[int] = []
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)

    def run(command: Words, *_: Any, **options: Any) -> None:
        threads.append(options["threads"])
        Path(command[command.index("--save-dir") + 1], "checkpoint_last.pt").touch()

    monkeypatch.setattr(run_experiment.commands, "run", run)
    monkeypatch.setattr(RecipeData, "prepared_jobs", lambda data: Jobs(data.folder, "prepared"))
    for recipe in ("quickstart_g2p", "multi30k_en_de"):
        experiment = made(recipe, tmp_path / recipe)
        experiment.checkpoints.mkdir(parents=True)
        run_experiment.train(experiment)
        recorded = json.loads(experiment.provenance_path.read_text())["threads"]
        assert recorded == str(threads[-1] or torch.get_num_threads())
    assert threads == [1, None]


@pytest.mark.parametrize(
    ("flag", "begun", "refused"),
    [("--restore-file", False, True), ("--restore-file", True, True), ("--finetune-from-model", False, True)]
    + [("--finetune-from-model", True, False), ("--encoder-embed-path", True, True)],
)
def test_what_a_training_starts_from_has_to_be_there(
    flag: str, begun: bool, refused: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """fairseq would start anew without the first, and reads the second only at the first start."""
    experiment = made("multi30k_en_de", tmp_path, train_flags=(flag, "none.pt"))
    if begun:
        experiment.checkpoints.mkdir(parents=True)
        (experiment.checkpoints / "checkpoint_last.pt").touch()
    if refused:
        with pytest.raises(UserError, match=f"^{flag} none.pt: no such file$"):
            run_experiment.check_start_files(experiment)
    else:
        run_experiment.check_start_files(experiment)


def test_a_training_that_saves_nothing_is_not_done(train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_experiment.commands, "run", lambda *_, **options: None)
    with pytest.raises(UserError, match=r"train\.log: the training has ended without a checkpoint$"):
        train()
    assert not list(tmp_path.rglob("train.done"))


@pytest.fixture
def trained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Experiment, list[str]]:
    """A trained run, with stand-ins for all commands, and the names of those that ran since."""
    run = made("iwslt14_de_en", tmp_path)
    run.data.corpus.mkdir()
    for split in ("train", "valid", "test"):
        (run.data.corpus / f"{split}.de").touch()
    run.data.pieces.mkdir()
    (run.data.pieces / "bpecodes").touch()
    ran: list[str] = []

    def save_checkpoints() -> None:
        run.checkpoints.mkdir(parents=True, exist_ok=True)
        for name in ("best", "last"):
            (run.checkpoints / f"checkpoint_{name}.pt").touch()

    def stand_in(command: list[str | Path], log: Path, progress: Any = None, append: bool = False, **_: Any) -> None:
        ran.append(str(command[0]))
        (run.model_path if "average" in command else log).touch()
        if command[0] == "fairseq-train":
            save_checkpoints()
        if "score" in command:
            score = {"metric": "BLEU", "value": 30.0 + len(ran), "detail": "d", "signature": "s", "sentences": 2}
            progress(json.dumps(score))

    monkeypatch.setattr(run_experiment.commands, "run", stand_in)
    monkeypatch.setattr(RecipeData, "prepared_jobs", lambda data: Jobs(data.folder, "prepared"))
    run_experiment.train(run)
    ran.clear()
    return run, ran


def test_scores_are_written_by_name(trained: tuple[Experiment, list[str]], monkeypatch) -> None:
    run, ran = trained
    scores = run_experiment.evaluate(run)
    assert {title: score.value for title, score in scores.items()} == {"BLEU valid": 34.0, "BLEU test": 35.0}
    written = json.loads((run.folder / "scores.json").read_text())
    assert {title: Score(**entry) for title, entry in written.items()} == scores
    assert (run.model_path.parent / "bpecodes").is_file()  # beside the model, for translation
    assert ran == ["ode-transformer", *["fairseq-generate"] * 2, *["ode-transformer"] * 2]
    assert run_experiment.evaluate(run) == scores
    assert len(ran) == 5  # nothing is done twice
    monkeypatch.setattr(run_experiment, "is_trained", lambda experiment: True)
    assert run_experiment.existing_scores(run) == scores
    with (
        lock_directory(run.model_path.parent, "evaluating"),
        pytest.raises(UserError, match="model: another process is evaluating here"),
    ):
        run_experiment.evaluate(run)


def test_checkpoints_can_be_deleted_once_they_are_averaged(trained, monkeypatch, capsys) -> None:
    run, ran = trained
    scores = run_experiment.evaluate(run)
    commands_of_evaluation = len(ran)
    best, last = (run.checkpoints / f"checkpoint_{name}.pt" for name in ("best", "last"))

    def check_that_nothing_runs() -> None:
        ran.clear()
        run_experiment.train(run)
        assert run_experiment.evaluate(run) == run_experiment.existing_scores(run) == scores
        assert ran == []

    best.unlink()
    check_that_nothing_runs()
    shutil.rmtree(run.checkpoints)
    run.model_path.unlink()
    check_that_nothing_runs()
    assert "left out" not in capsys.readouterr().out

    other = replace(run, recipe=run.recipe.model_copy(update={"average": Average(last=2)}))
    assert run_experiment.existing_scores(other) is None
    assert "left out, " in capsys.readouterr().out
    run_experiment.train(other)
    assert ran == []  # another average is no reason to train again

    run.checkpoints.mkdir()
    best.write_text("new")
    last.write_text("new")
    assert run_experiment.existing_scores(run) is None
    assert "trained but not evaluated as it is now (average)" in capsys.readouterr().out
    run_experiment.evaluate(run)
    assert len(ran) == commands_of_evaluation


def test_checkpoints_deleted_before_they_are_averaged_are_missed(trained, capsys) -> None:
    run, ran = trained
    shutil.rmtree(run.checkpoints)
    assert run_experiment.existing_scores(run) is None
    assert "left out, " in capsys.readouterr().out
    with pytest.raises(UserError, match="checkpoints: no checkpoint; ode-transformer train makes it"):
        run_experiment.evaluate(run)
    run_experiment.train(run)
    assert ran == ["fairseq-train"]
