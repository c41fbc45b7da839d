"""The systems of a published table: which they are, and what happens if one of them fails."""

import errno
from pathlib import Path

import pytest
import yaml
from pydantic import ValidationError

from ode_transformer.cli import main
from ode_transformer.lab.metrics.metric import Score
from ode_transformer.lab.recipes import run_experiment, workflow
from ode_transformer.lab.recipes.experiment import Experiment
from ode_transformer.lab.recipes.options import find_recipe
from ode_transformer.lab.recipes.published import published_table, table_systems
from ode_transformer.lab.recipes.recipe import Recipe
from ode_transformer.support.errors import UserError

TABLE = "Li et al. 2022, Table 5"


def titles(recipe: str, table: str, variant: str | None = None, *patterns: str) -> list[str]:
    return [result.title for result in table_systems(recipe, table, variant, patterns or ("*",))]


def test_rows_of_one_name_are_told_apart_by_their_variant() -> None:
    both = titles("wmt14_en_de", "Li et al. 2022, Table 1")
    assert len(both) == 31
    assert {"RK4-block, 6-6", "RK4-block, 6-6 (released)"} < set(both)
    assert titles("wmt14_en_de", "Li et al. 2022, Table 1", "released", "RK4*6-6*") == [
        *("RK4-block, 6-6 (released)", "RK4-block, big 6-6 (released)"),
    ]
    with pytest.raises(UserError, match=r"--systems: no system of .* it has Residual-block, 1 layer \| RK2-block"):
        titles("ptb", TABLE, None, "nothing")


@pytest.fixture
def trained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Stand-ins for training and evaluation, and the architectures that were trained; RK4 and γ = 1 fail at first."""
    calls: list[str] = []
    monkeypatch.chdir(tmp_path)

    def train(experiment: Experiment) -> None:
        calls.append(experiment.folder.name)
        experiment.checkpoints.mkdir(parents=True, exist_ok=True)
        (experiment.checkpoints / "checkpoint_last.pt").touch()
        if calls.count(calls[-1]) == 1 and "rk4" in calls[-1]:
            raise UserError("fairseq-train failed, see train.log: CUDA out of memory")
        if calls.count(calls[-1]) == 1 and "ones" in calls[-1]:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(workflow, "prepare", lambda data, options: None)
    monkeypatch.setattr(run_experiment, "train", train)
    scores = {"Perplexity valid": Score("Perplexity valid", 120.0, "s", "", 1)}
    monkeypatch.setattr(run_experiment, "evaluate", lambda experiment: scores)
    return calls


def test_a_failure_does_not_stop_the_other_systems(trained: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    words = ["reproduce", "ptb", "--gpus", "0", "--table", TABLE, "--systems", "*, 1 layer", "--", "--seed", "2"]
    assert main(words) == 2
    printed, error = capsys.readouterr()
    assert len(trained) == 5
    assert printed.startswith(f"{TABLE}: 5 trainings of 5 systems;")
    assert "| RK2-block, 1 layer | 120.00 | 131.80 |" in printed
    assert "| RK4-block, 1 layer |" not in printed
    command = "+ ode-transformer reproduce ptb --gpus 0 --table 'Li et al. 2022, Table 5' --systems '*, 1 layer' "
    assert f"failed: RK4-block, 1 layer\n{command}--systems 'RK4-block, 1 layer' -- --seed 2\n" in printed
    assert "error: 2 of 5 systems failed; the first: RK2-block, γ = 1, 1 layer: [Errno 28] No space left" in error
    assert main(words) == 0
    assert "| RK4-block, 1 layer | 120.00 | 126.89 |" in capsys.readouterr().out


def test_checkpoints_go_on_demand_once_a_run_is_evaluated(trained: list[str], tmp_path: Path) -> None:
    for words, kept in (([], 1), (["--model-only"], 0)):
        assert main(["reproduce", "ptb", "--gpus", "0", *words]) == 0
        assert len(list(tmp_path.rglob("*.pt"))) == kept


def test_the_systems_that_a_paper_compares_are_tested_over_sentences(trained: list[str], monkeypatch, capsys) -> None:
    """As Xu et al. (2020) mark a score that is better than that of the Transformer of the same size."""

    def evaluate(experiment: Experiment) -> dict[str, Score]:
        experiment.data.corpus.mkdir(parents=True, exist_ok=True)
        (experiment.data.corpus / "test.de").write_text("a b c d e\n" * 20)
        words = "a b c d e" if "dlstm" in experiment.folder.name else "a b c d f"
        lines = [f"T-{n}\ta b c d e\nH-{n}\t-1\t{words}\nD-{n}\t-1\t{words}\n" for n in range(20)]
        experiment.decode_log("test").write_text("".join(lines))
        return {"BLEU": Score("BLEU", 1.0, "s", "", 20)}

    monkeypatch.setattr(run_experiment, "evaluate", evaluate)
    command = ["reproduce", "wmt14_en_de", "--gpus", "0", "--table", "Xu et al. 2020, Table 1"]
    base = "depth-wise LSTM, base − Transformer, base (xu_2020): BLEU"
    for chosen, tests in (
        ([], [base, "depth-wise LSTM, big − Transformer, big (xu_2020): BLEU"]),
        (["--systems", "*, base*"], [base]),
        (["--systems", "depth*"], ["depth-wise LSTM, base − depth-wise LSTM, big: BLEU"]),  # two without such a pair
        (["--systems", "depth*,*, base*"], [base]),
    ):
        assert main([*command, *chosen]) == 0
        lines = [line for line in capsys.readouterr().out.splitlines() if " − " in line]
        assert [line.partition(" +")[0] for line in lines] == tests
    assert lines[0].startswith(f"{base} +33.13 [")


def test_a_system_without_a_score_of_the_others_has_none_in_the_table() -> None:
    first, second = table_systems("wmt14_en_de", "Lu et al. 2019, Table 1", None, ["*et, base", "Transformer, base*"])
    scores = {title: Score(title, 28.0, "s", "", 1) for title in ("BLEU", "BLEU of Macaron's script")}
    table = published_table([(first, [scores]), (second, [{"BLEU": scores["BLEU"]}])])
    rows = [[cell.strip() for cell in line.split("|")[2:-1]] for line in table.splitlines()[2:]]
    assert rows == [["28.00", "", "28.00", "28.90"], ["28.00", "27.30", "", ""]]


def test_a_row_is_compared_with_a_row_of_its_table() -> None:
    row = {"arch": "a", "scores": {}}
    rows = [{**row, "table": "T", "system": "x", "against": "y"}, {**row, "table": "U", "system": "y"}]
    recipe = find_recipe("ptb")
    values = yaml.safe_load(recipe.read_text(encoding="utf-8")) | {"expected": rows}
    with pytest.raises(ValidationError, match="T, x: against y: no such row of this table"):
        Recipe.model_validate(values)
