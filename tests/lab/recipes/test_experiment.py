"""The commands of an experiment, the names of its runs, and what makes it the same training."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from ode_transformer.lab.metrics.metric import Score
from ode_transformer.lab.recipes import run_experiment
from ode_transformer.lab.recipes.experiment import Experiment
from ode_transformer.lab.recipes.machine import Machine
from ode_transformer.lab.recipes.options import RunOptions
from ode_transformer.lab.recipes.preparation import RecipeData
from ode_transformer.lab.recipes.recipe import Average, load_recipe
from ode_transformer.lab.recipes.training import run_name
from ode_transformer.models.criteria import COUNTERPARTS
from ode_transformer.support.errors import UserError
from ode_transformer.support.files import lock_directory
from ode_transformer.support.jobs import Jobs, Manifest

Words = list[str]
ONE_GPU = Machine(1, "fp16")


def made(
    name: str, folder: Path = Path("data"), machine: Machine = ONE_GPU, seed: int | None = None, **chosen: Any
) -> Experiment:
    options = RunOptions(**chosen)
    recipe = load_recipe(name, options)
    return Experiment(recipe, RecipeData(recipe, folder), machine, options, seed)


def value(command: list[str | Path], flag: str) -> str:
    return str(command[command.index(flag) + 1])


# -- commands -----------------------------------------------------------------------------------------------------


def test_each_flag_has_the_value_of_its_last_source() -> None:
    run = made("iwslt14_de_en", arch="macaron_iwslt_de_en", seed=7, minutes=30.0, train_flags=("--clip-norm", "2"))
    layers, options = run.train_layers(), run.train_options()
    assert len({source for source, _ in layers}) == len(layers)
    for name, setting in options.items():
        assert setting == [flags[name] for _, flags in layers if name in flags][-1]
    assert (options["lr"], options["seed"], options["stop-time-hours"]) == (0.0015, 7, 0.5)
    table = {line.split("|")[1].strip(): line.split("|")[3].strip() for line in run.train_sources().splitlines()}
    sources = [table[flag] for flag in ("--lr", "--seed", "--max-tokens", "--num-workers", "--clip-norm 2")]
    expected = ["architectures.macaron*", "--seed", "tokens_per_update", "GPU", "the study, or words after --"]
    assert sources == expected


def test_a_gpu_does_not_wait_for_its_batches_and_the_training_stays_the_same(tmp_path: Path) -> None:
    on_gpu, on_cpu = made("multi30k_en_de"), made("multi30k_en_de", machine=Machine(0))
    workers = [value(run.train_command(), "--num-workers") for run in (on_gpu, on_cpu)]
    assert workers == ["1", "0"]
    assert ["--cuda-graphs" in run.train_command() for run in (on_gpu, on_cpu)] == [True, False]
    several = made("wmt14_en_de", machine=Machine(8, "fp16"))
    assert value(several.train_command(), "--ddp-backend") == "legacy_ddp"  # which reduces recorded gradients
    large = made("wmt14_en_de", machine=Machine(1, "fp16", large_gpus=True))
    assert large.batch.max_tokens > 3 * made("wmt14_en_de").batch.max_tokens
    assert large.batch.tokens == pytest.approx(made("wmt14_en_de").batch.tokens, rel=1e-3)
    own = made("multi30k_en_de", train_flags=("--criterion", "cross_entropy"))
    assert "--cuda-graphs" not in own.train_command()
    assert on_gpu.digest(Jobs(tmp_path, "prepared")) == on_cpu.digest(Jobs(tmp_path, "prepared"))


@pytest.mark.parametrize("name", ["multi30k_en_de", "ptb"])
def test_the_fused_forms_resume_a_training_with_fairseqs_own(name: str, tmp_path: Path) -> None:
    run = made(name)
    fairseqs = {flag: COUNTERPARTS[str(run.recipe.train[flag])] for flag in ("optimizer", "criterion")}
    begun = replace(run, recipe=run.recipe.model_copy(update={"train": run.recipe.train | fairseqs}).for_arch(None))
    data = Jobs(tmp_path, "prepared")
    assert begun.train_options()["optimizer"] == fairseqs["optimizer"]
    assert run.digest(data) == begun.digest(data)
    assert run.digest(data) != replace(run, options=RunOptions(train_flags=("--lr", "1"))).digest(data)


def test_a_short_run_decodes_and_scores_the_first_sentences(tmp_path: Path) -> None:
    run = made("multi30k_en_de", tmp_path, minutes=2.0)
    assert made("multi30k_en_de", tmp_path, minutes=5.0).first_sentences is None
    for folder, name in ((run.data.pieces, "test.en"), (run.data.pieces, "test.de"), (run.data.corpus, "test.de")):
        folder.mkdir(exist_ok=True)
        (folder / name).write_text("".join(f"{name} {number}\n" for number in range(300)))
    (run.data.binary / "dict.en.txt").parent.mkdir()
    (run.data.binary / "dict.en.txt").touch()
    assert run.first_sentences is not None
    run_experiment._write_first_sentences(run, ["test"], run.first_sentences)
    files = {path.name: path.read_text().splitlines() for path in run.first_sentences.iterdir()}
    assert files.pop("dict.en.txt") == []
    assert {name: (len(lines), lines[-1]) for name, lines in files.items()} == {
        "test.en-de.en": (200, "test.en 199"),
        "test.en-de.de": (200, "test.de 199"),
        "test.de": (200, "test.de 199"),
    }
    decode, score = run.decode_command("test"), run.score_command(run.recipe.score[0], "test")
    assert (decode[1], value(decode, "--dataset-impl")) == (run.first_sentences, "raw")
    assert value(score, "--references") == str(run.first_sentences / "test.de")


# -- runs ---------------------------------------------------------------------------------------------------------


def test_names_of_runs() -> None:
    names = {
        "reformer_fast_iwslt_de_en": {},
        "macaron_iwslt_de_en": {"arch": "macaron_iwslt_de_en"},
        "reformer_fast_iwslt_de_en-variant-released": {"variant": "released"},
        "reformer_fast_iwslt_de_en-seed-3": {"seed": 3},
        "reformer_fast_iwslt_de_en-max-epoch--3-s-de": {"train_flags": ("--max-epoch", "-3", "-s", "de")},
    }
    for name, chosen in names.items():
        assert made("iwslt14_de_en", **chosen).folder.name == name
    for same in ({"machine": Machine(8, "fp16")}, {"minutes": 5.0}, {"max_tokens": 1000}):
        assert made("iwslt14_de_en", **same).folder == made("iwslt14_de_en").folder
    flags = [word for number in range(60) for word in ("--dropout", f"0.{number}")]
    long = {run_name("arch", [*flags, "--seed", str(seed)]) for seed in (1, 2)}
    assert len(long) == 2
    assert all(len(name) < 120 for name in long)


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
    monkeypatch.setattr(RecipeData, "dictionary_sizes", lambda data: [40])
    monkeypatch.setattr(RecipeData, "prepared_jobs", lambda data: Jobs(data.folder, "prepared"))

    def start(update: dict[str, Any] | None = None, **more: Any) -> Words:
        experiment = made("multi30k_en_de", tmp_path, **more)
        recipe = experiment.recipe.model_copy(update=update or {})
        assert experiment.checkpoints == checkpoints
        calls.clear()
        run_experiment.train(replace(experiment, recipe=recipe))
        return calls[0] if calls else []

    return start


@pytest.mark.parametrize(
    "more", [{"machine": Machine(8, "fp16")}, {"machine": Machine(0)}, {"minutes": 90.0}, {"max_tokens": 512}]
)
def test_a_training_goes_on_anywhere_and_ends_once(train, tmp_path: Path, more: dict[str, Any]) -> None:
    assert train()[-2:] == ["append=False", "train.log"]
    assert train() == []
    if "minutes" not in more:
        assert train(**more) == []  # what has ended stays ended
        Manifest(made("multi30k_en_de", tmp_path).folder).record(**{"done train": None})  # as if it had been stopped
    assert train(**more)[-2] == "append=True"


def test_another_recipe_or_other_data_are_another_training(train, tmp_path: Path, monkeypatch) -> None:
    train()
    (record,) = tmp_path.rglob("experiment.json")
    record.write_text("that of the other training")
    with pytest.raises(UserError, match="of a training with other flags or data"):
        train({"tokens_per_update": 4096})
    monkeypatch.setattr(RecipeData, "prepared_jobs", lambda data: Jobs(data.folder, "other"))
    with pytest.raises(UserError, match="of a training with other flags or data"):
        train()
    assert record.read_text() == "that of the other training"


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

    def stand_in(command: list[str | Path], log: Path, progress: Any = None, append: bool = False, **_: Any) -> None:
        ran.append(str(command[0]))
        for path in (log, run.model_path) if "average" in command else (log,):
            path.touch()
        if command[0] == "fairseq-train":
            run.checkpoints.mkdir(parents=True, exist_ok=True)
            for name in ("best", "last"):
                (run.checkpoints / f"checkpoint_{name}.pt").touch()
        if "score" in command:
            score = {"metric": "BLEU", "value": 30.0 + len(ran), "detail": "d", "signature": "s", "sentences": 2}
            progress(json.dumps(score))

    monkeypatch.setattr(run_experiment.commands, "run", stand_in)
    monkeypatch.setattr(RecipeData, "dictionary_sizes", lambda data: [40, 50])
    monkeypatch.setattr(RecipeData, "prepared_jobs", lambda data: Jobs(data.folder, "prepared"))
    run_experiment.train(run)
    ran.clear()
    return run, ran


def test_scores_are_written_by_name(trained: tuple[Experiment, list[str]]) -> None:
    run, ran = trained
    scores = run_experiment.evaluate(run)
    assert {title: score.value for title, score in scores.items()} == {"BLEU valid": 34.0, "BLEU test": 35.0}
    written = json.loads((run.folder / "scores.json").read_text())
    assert {title: Score(**entry) for title, entry in written.items()} == scores
    assert (run.model_path.parent / "bpecodes").is_file()  # beside the model, for translation
    assert ran == ["ode-transformer", *["fairseq-generate"] * 2, *["ode-transformer"] * 2]
    assert run_experiment.evaluate(run) == run_experiment.existing_scores(run) == scores
    assert len(ran) == 5  # nothing is done twice
    with (
        lock_directory(run.model_path.parent, "evaluating"),
        pytest.raises(UserError, match="model: another process is evaluating here"),
    ):
        run_experiment.evaluate(run)


def test_checkpoints_can_be_deleted_once_they_are_averaged(trained, capsys) -> None:
    run, ran = trained
    scores = run_experiment.evaluate(run)
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


VALIDATION = '2026-01-01 00:00:00 | INFO | valid | {{"epoch": 1, "valid_loss": "{}", "valid_num_updates": "{}"}}\n'


@pytest.mark.parametrize(
    ("average", "line"),
    [
        ("4.9", "average of updates 10, 20 (validation loss 4.900; last, update 30: 6.000; best, update 20: 5.000)"),
        ("5.1", "best, update 20 (validation loss 5.000; average of updates 10, 20: 5.100; last, update 30: 6.000)"),
    ],
)
def test_the_lowest_validation_loss_decides_between_average_last_and_best(trained, average: str, line: str) -> None:
    run, ran = trained
    run = replace(run, recipe=run.recipe.model_copy(update={"average": Average(last=2, compare=True)}))
    run.log.write_text("".join(VALIDATION.format(loss, at) for loss, at in ((7, 10), (5, 20), (6, 30))))
    for name, updates in (("checkpoint1", 10), ("checkpoint2", 20), ("checkpoint_best", 20), ("checkpoint_last", 30)):
        state = {"model": {"w": torch.zeros(1)}, "optimizer_history": [{"num_updates": updates}]}
        torch.save(state, run.checkpoints / f"{name}.pt")

    def stand_in(command: list[str | Path], log: Path, progress: Any = None, append: bool = False, **_: Any) -> None:
        ran.append(f"{command[0]} {Path(command[3]).name}")
        with open(log, "a" if append else "w") as file:
            file.write(
                VALIDATION.format(average, 0) if "validate" in ran[-1] else "model.pt: average of updates 10, 20\n"
            )

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run_experiment.commands, "run", stand_in)
        run.model_path.parent.mkdir()
        run_experiment._write_model(run)
    assert (run.folder / "average.log").read_text().splitlines()[-1] == f"{run.model_path}: {line}"
    assert ("ode-transformer checkpoint_best.pt" in ran) == line.startswith("best")
