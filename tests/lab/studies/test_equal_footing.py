"""Three questions about the same runs, and the test over sentences."""

import csv
import io
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ode_transformer.lab.metrics.metric import Score, SentenceStatistics
from ode_transformer.lab.studies import paired_comparison
from ode_transformer.lab.studies.equal_footing import draw_validations, mean_curve, table_rows
from ode_transformer.lab.studies.paired_comparison import paired_csv, paired_table, paired_tests, read_statistics
from ode_transformer.lab.studies.results import StudyResults, StudyRun
from ode_transformer.lab.studies.study import Row, Setting, Study, StudySystem
from ode_transformer.support.errors import UserError

STUDY = Study(
    title="A question",
    source="A paper",
    settings={"here": Setting(recipe="b")},
    seeds=[1, 2],
    systems=[StudySystem(name="plain", arch="a"), StudySystem(name="dear", arch="b")],
)
# After 100, 200 and 400 updates; "dear" costs twice as much for each
CURVES = {"plain": [40.0, 30.0, 20.0], "dear": [36.0, 24.0, 12.0]}


def results(folder: Path | None = None) -> StudyResults:
    runs = [
        StudyRun(
            *(Row(system), seed, 1000, 50 if system.name == "plain" else 100, 400, 1.0, {}, {}),
            folder and folder / f"{system.name}{seed}",
            [(updates, y + seed) for updates, y in zip((100, 200, 400), CURVES[system.name], strict=True)],
        )
        for system in STUDY.systems
        for seed in STUDY.seeds
    ]
    return StudyResults(STUDY, "here", runs, {})


def test_equal_compute_reads_the_dearer_system_earlier() -> None:
    assert table_rows(results())[1:] == [
        ["plain", "1.00", "1.00", "2", "21.50 ± 0.71", "21.50 ± 0.71", "400"],
        ["dear", "1.00", "2.00", "2", "13.50 ± 0.71", "25.50 ± 0.71", "200"],
    ]


def test_seeds_need_no_validation_after_the_same_update(tmp_path: Path) -> None:
    """The mean over seeds is that of their curves: FP16 skips other updates with each seed."""
    first, second = [(100, 40.0), (200, 30.0)], [(110, 44.0), (210, 20.0)]
    runs = [replace(run, validations=v) for run, v in zip(results().runs, [first, second] * 2, strict=True)]
    assert list(mean_curve(runs[:2])) == [(110, pytest.approx((39 + 44) / 2)), (200, pytest.approx((30 + 22.4) / 2))]
    assert list(mean_curve([replace(runs[0], validations=[(u, 5.0)]) for u in (100, 101)])) == [(101, 5.0)]
    draw_validations(replace(results(), runs=runs), tmp_path / "curves.png")
    assert (tmp_path / "curves.png").stat().st_size > 10_000


def test_a_system_is_tested_against_its_controls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The control errs in one sentence, the system in two, the first system in none."""
    wrong = {"plain": 0, "control": 1, "dear": 2}
    systems = [StudySystem(name=name, arch="a", against=["control"] if name == "dear" else []) for name in wrong]
    runs = [
        StudyRun(
            Row(system), 1, 1, 1, 1, 1.0, {}, folder=tmp_path / system.name, score_commands={"errors": [system.name]}
        )
        for system in systems
    ]
    compared = StudyResults(STUDY.model_copy(update={"systems": systems}), "here", runs, {})

    def read(command: list[str]) -> SentenceStatistics:
        errors = [[int(n < wrong[command[0]])] for n in range(4)]
        return SentenceStatistics(
            np.array(errors, dtype=float), lambda sums: Score("errors", float(sums[0]), "", "", 4)
        )

    monkeypatch.setattr(paired_comparison, "read_statistics", read)
    monkeypatch.setattr(paired_comparison, "SAMPLES", 100)
    tests = list(paired_tests(compared))
    assert [(*texts, differences["errors"].value) for texts, differences in tests] == [
        ("control", "plain", "1", 1),
        ("dear", "plain", "1", 2),
        ("dear", "control", "1", 1),
    ]


def test_logs_are_compared(tmp_path: Path) -> None:
    runs = []
    for run in results(tmp_path).runs:
        assert run.folder is not None
        run.folder.mkdir()
        wrong = run.row.system.name == "dear"
        lines = [f"S-{n}\ta\nT-{n}\tA B\nD-{n}\t0\t{'A C' if wrong else 'A B'}\n" for n in range(5)]
        log = run.folder / "generate.test.log"
        log.write_text("".join(lines))
        score = {t: ["ode-transformer", "score", "--metric", t.lower(), "--generate-log", log] for t in ("PER", "WER")}
        runs.append(replace(run, score_commands=score))
    compared = replace(results(tmp_path), runs=runs)
    tests = list(paired_tests(compared))
    table = paired_table(compared, tests)
    assert table.rows[0] == ["system", "against", "seeds", "PER: difference [95%], p", "WER: difference [95%], p"]
    assert [row[:4] for row in table.rows[1:]] == [["dear", "plain", "2", "+50.00 [+50.00, +50.00], p = 0.0001"]]
    heads, errors, words = csv.reader(io.StringIO(paired_csv(compared, tests)))
    assert heads == ["system", "against", "seeds", "score", "difference", "low", "high", "p"]
    assert errors == ["dear", "plain", "2", "PER", "50.0000", "50.0000", "50.0000", "0.0001"]
    assert words[3] == "WER"
    assert not list(paired_tests(StudyResults(STUDY, "here", [], {})))
    assert not list(paired_tests(results(tmp_path)))
    with pytest.raises(UserError, match="not a command of ode-transformer score: score bleu"):
        read_statistics(["score", "bleu"])
