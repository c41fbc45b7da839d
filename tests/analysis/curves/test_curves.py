"""Curves from fairseq's logs."""

import csv
import struct
import sys
from pathlib import Path

import pytest
from tensorboard.compat.tensorflow_stub.pywrap_tensorflow import masked_crc32c
from tensorboard.summary.writer.record_writer import RecordWriter

from ode_transformer.analysis.curves.plot import LoggedRun, curve, draw_figure
from ode_transformer.analysis.curves.training_log import read_events, read_log
from ode_transformer.cli.command import main
from ode_transformer.support.errors import UserError


def start() -> str:
    return "2026-01-01 | INFO | fairseq_cli.train | training on 1 devices (GPUs/TPUs)\n"


def train(updates: int, wall: int, loss: float = 5.0, epoch: int = 1, extra: str = "") -> str:
    return (
        f'2026-01-01 | INFO | train_inner | {{"epoch": {epoch}, "update": 0.5, "loss": "{loss}", '
        f'"nll_loss": "4.5", "num_updates": "{updates}", "train_wall": "0", "wall": "{wall}"{extra}}}\n'
    )


def valid(updates: int, loss: float = 4.0, name: str = "valid", epoch: int = 1) -> str:
    return (
        f'2026-01-01 | INFO | {name} | {{"epoch": {epoch}, "{name}_loss": "{loss}", '
        f'"{name}_nll_loss": "3.5", "{name}_num_updates": "{updates}"}}\n'
    )


def epoch_end(updates: int, wall: int) -> str:
    return (
        f'2026-01-01 | INFO | train | {{"epoch": 1, "train_loss": "4.5", "train_num_updates": "{updates}", '
        f'"train_train_wall": "0", "train_wall": "{wall}"}}\n'
    )


def write(path: Path, *lines: str) -> Path:
    path.write_text("".join(lines))
    return path


def series(path: Path, split: str) -> list[tuple[int, float | None, float]]:
    return [(point.updates, point.minutes, point.loss) for point in read_log(path) if point.split == split]


def test_a_clock_that_stands_still_after_a_resume_is_replaced(tmp_path: Path) -> None:
    resumed = [train(updates, 0).replace('"train_wall": "0"', '"train_wall": "30"') for updates in (20, 30)]
    log = write(tmp_path / "log", start(), train(10, 60), start(), *resumed)
    assert series(log, "train") == [(10, 1.0, 5.0), (20, 1.5, 5.0), (30, 2.0, 5.0)]


def test_training_and_validation(tmp_path: Path):
    log = write(
        tmp_path / "log",
        "2026-01-01 | INFO | fairseq_cli.train | {'_name': None, 'common': {'seed': 1}}\n",
        start(),
        train(10, 60, 6.0),
        train(20, 120, 5.0),
        valid(20, 4.5),
        epoch_end(20, 150),
        train(30, 210, 4.0, epoch=2),
    )
    # The end of the epoch sets the clock of its update anew, validation included.
    assert series(log, "train") == [(10, 1.0, 6.0), (20, 2.5, 5.0), (30, 3.5, 4.0)]
    assert series(log, "valid") == [(20, 2.5, 4.5)]
    assert series(log, "train-epoch") == [(20, 2.5, 4.5)]
    first = read_log(log)[0]
    assert (first.split, first.epoch, first.nll_loss) == ("train", 1, 4.5)


def test_a_log_file_without_prefixes_and_with_repeated_lines(tmp_path: Path):
    once = [line.partition(" | INFO | ")[2].partition(" | ")[2] for line in (train(10, 6), valid(10), train(20, 12))]
    log = write(tmp_path / "log", *(line * times for times, line in enumerate(once, start=1)))
    assert len(read_log(log)) == 3


def test_minutes_of_a_validation_are_interpolated(tmp_path: Path):
    log = write(tmp_path / "log", start(), valid(5), train(10, 60), valid(15), train(20, 180), valid(25))
    assert series(log, "valid") == [(5, 0.5, 4.0), (15, 2.0, 4.0), (25, None, 4.0)]


def test_the_clock_goes_on_when_training_is_resumed(tmp_path: Path):
    log = write(tmp_path / "log", start(), train(10, 60), train(20, 120), start(), train(30, 90), valid(25))
    assert series(log, "train") == [(10, 1.0, 5.0), (20, 2.0, 5.0), (30, 3.5, 5.0)]
    assert series(log, "valid") == [(25, 2.75, 4.0)]


def test_reports_that_a_resumed_run_overtook_are_left_out(tmp_path: Path):
    log = write(
        tmp_path / "log",
        *(start(), train(10, 60), train(20, 120), valid(20, 9.0), train(30, 180)),
        *(start(), train(15, 60, 1.0), train(20, 120, 2.0)),
    )
    assert series(log, "train") == [(10, 1.0, 5.0), (15, 4.0, 1.0), (20, 5.0, 2.0)]
    assert series(log, "valid") == []


def test_several_validation_sets_and_a_criterion_without_nll(tmp_path: Path):
    plain = '{"epoch": 1, "loss": "3.0", "num_updates": "10", "wall": "60"}\n'
    log = write(tmp_path / "log", plain, valid(10, 4.0), valid(10, 5.0, "valid1"))
    assert [(point.split, point.loss, point.nll_loss) for point in read_log(log)] == [
        ("train", 3.0, None),
        ("valid", 4.0, 3.5),
        ("valid1", 5.0, 3.5),
    ]


def test_a_loss_can_be_nan(tmp_path: Path):
    [point] = read_log(write(tmp_path / "log", train(10, 60, float("nan"))))
    assert point.loss != point.loss


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nothing here\n{'a': 1}\n{broken\n", "no reports in it: train with --log-format json"),
        (train(10, 5).replace('"5.0"', '"five"'), "line 1: broken report .*five"),
        ("\n" + train(10, 5).replace('"epoch": 1, ', ""), "line 2: broken report .*epoch"),
        (train(10, 5).replace('"10"', "null"), "line 1: broken report"),
        (train(10, 5).replace('"10"', "Infinity"), "line 1: broken report"),
        (train(-10, 5), "line 1: broken report .*-10 is out of range"),
        (train(10**20, 5), "line 1: broken report .*100000000000000000000 is out of range"),
        (train(10, 5, epoch=10**25), "line 1: broken report .*10000000000000000000000000 is out of range"),
        (train(10, 1e308), "line 1: broken report .*1e\\+308 is out of range"),
        ('{"a": ' * 100_000, "no reports in it"),
    ],
)
def test_broken_logs(tmp_path: Path, text: str, message: str):
    with pytest.raises(UserError, match=message):
        read_log(write(tmp_path / "log", text))


def test_a_line_cut_off_by_a_crash_is_left_out(tmp_path: Path):
    log = write(tmp_path / "log", train(10, 60), train(20, 120)[:-30])
    assert series(log, "train") == [(10, 1.0, 5.0)]


def test_a_record_of_tensorboard_that_is_no_event(tmp_path: Path):
    path = tmp_path / "valid" / "events.out.tfevents.1"
    path.parent.mkdir()
    with open(path, "wb") as file:
        RecordWriter(file).write(b"\xff")
    with pytest.raises(UserError, match=f"{path}: cannot be read as a TensorBoard file: Error parsing"):
        read_events(tmp_path)
    length = struct.pack("<Q", 2**63)  # with a checksum that is right
    path.write_bytes(length + struct.pack("<I", masked_crc32c(length)) + bytes(100))
    with pytest.raises(UserError, match=f"{path}: cannot be read as a TensorBoard file: "):
        read_events(tmp_path)


def test_bytes_that_are_not_utf8_and_control_characters_do_not_matter(tmp_path: Path):
    log = tmp_path / "log"
    text = f"S-0\tnot \x00 a \u2028 report {train(10, 60)}H-0\t"
    log.write_bytes(b"\xff\xfe\n" + text.encode() + b"\xe2\x80\n" + train(20, 120).encode())
    assert series(log, "train") == [(10, 1.0, 5.0), (20, 2.0, 5.0)]


def test_csv(tmp_path: Path):
    write(tmp_path / "rk2.log", train(10, 20), valid(15))
    assert main(["analyse", "curves", str(tmp_path / "rk2.log"), "--csv", str(tmp_path / "curves.csv")]) == 0
    with open(tmp_path / "curves.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert rows[0] == {
        **{"run": str(tmp_path.name), "split": "train", "epoch": "1", "updates": "10"},
        **{"minutes": "0.333", "loss": "5.0", "nll_loss": "4.5", "perplexity": "22.6274", "gnorm": ""},
        **{"epochs": "0.5", "log": str(tmp_path / "rk2.log")},
    }
    assert (rows[1]["split"], rows[1]["minutes"]) == ("valid", "")


def test_plot(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    write(tmp_path / "rk2.log", train(10, 20), train(20, 40, float("nan")), valid(20), train(30, 60))
    write(tmp_path / "euler.log", train(10, 20))
    logs = [str(tmp_path / name) for name in ("rk2.log", "euler.log")]
    assert main(["analyse", "curves", *logs, "--output", str(tmp_path / "curves.png")]) == 0
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")
    assert capsys.readouterr().out == "rk2: 4 reports up to update 30\neuler: 1 reports up to update 10\n"


def norms(updates: int, gnorm: float, gate: float | None = None) -> str:
    shown = "null" if gate is None else f'"{gate}"'
    return train(updates, updates, extra=f', "gnorm": "{gnorm}", "depth/encoder/1/weight_1": {shown}')


def test_gradient_norms_and_layers(tmp_path: Path):
    points = read_log(write(tmp_path / "log", norms(10, 0.5), norms(20, 0.4, 0.25)))
    assert [(point.gnorm, dict(point.depth)) for point in points] == [
        (0.5, {}),
        (0.4, {"depth/encoder/1/weight_1": 0.25}),
    ]


def test_seeds_of_one_name_are_one_curve(tmp_path: Path):
    logs = [
        write(tmp_path / "1", norms(10, 1.0), norms(20, 2.0), norms(30, 7.0)),
        write(tmp_path / "2", norms(10, 3.0), norms(20, 5.0)),
        write(tmp_path / "3", norms(5, 9.0), norms(10, 2.0), norms(20, 2.0)),
    ]
    seeds = [LoggedRun("rk2", log, read_log(log)) for log in logs]
    assert curve(seeds, "train", "updates", lambda point: point.gnorm) == (
        [10.0, 20.0],
        [2.0, 3.0],
        [1.0, 2.0],
        [3.0, 5.0],
    )


def test_seeds_without_a_common_update(tmp_path: Path):
    logs = [write(tmp_path / str(number), norms(number, 1.0)) for number in (10, 20)]
    seeds = [LoggedRun("rk2", log, read_log(log)) for log in logs]
    with pytest.raises(UserError, match="^rk2: its 2 seeds have no updates in common, so no mean$"):
        draw_figure(seeds, ["gradient-norm"], ["updates"])


def test_by_epochs_training_is_the_mean_of_each(tmp_path: Path):
    last = train(20, 10, 7.0).replace('"update": 0.5', '"update": 1.0')
    log = write(tmp_path / "log", train(10, 5, 9.0), last, valid(20, 6.0), epoch_end(20, 11))
    run = LoggedRun("a", log, read_log(log))
    for split, loss in (("train", 4.5), ("valid", 6.0)):
        assert curve([run], split, "epochs", lambda point: point.loss)[:2] == ([1.0], [loss])
    assert curve([run], "train", "updates", lambda point: point.loss)[:2] == ([10, 20], [9.0, 7.0])


def test_an_epoch_that_training_stopped_in_has_not_ended(tmp_path: Path):
    log = write(tmp_path / "log", start(), train(10, 60), valid(15), epoch_end(15, 60), start(), epoch_end(20, 30))
    assert [(p.split, p.updates, p.epochs) for p in read_log(log)] == [("train", 10, 0.5), ("train-epoch", 20, 1.0)] + [
        ("valid", 15, 0.75)
    ]


def test_perplexity_is_of_the_nll_loss_or_else_of_the_loss(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    log = write(tmp_path / "log", train(10, 20), train(20, 40).replace('"nll_loss": "4.5", ', ""))
    assert [point.perplexity for point in read_log(log)] == pytest.approx([2**4.5, 2**5])
    assert main(["analyse", "curves", str(log), "--what", "perplexity", "--output", str(tmp_path / "a.png")]) == 0
    assert ": no nll_loss in some reports: their perplexity is that of the loss" in capsys.readouterr().out


@pytest.fixture
def runs(tmp_path: Path) -> list[LoggedRun]:
    """Two seeds of a system called a, and a system called b."""
    logs = [
        write(tmp_path / str(n), norms(10, 1.0 + n, 0.5), valid(10), norms(20, 2.0, 0.6), valid(20)) for n in (1, 2, 3)
    ]
    return [LoggedRun(name, log, read_log(log)) for name, log in zip(("a", "a", "b"), logs, strict=True)]


@pytest.mark.parametrize(
    ("quantity", "labels", "bands"),
    [
        ("loss", ["a, training", "a, validation", "b, training", "b, validation"], 2),
        ("gradient-norm", ["a, training", "b, training"], 1),
        ("depth/*", ["a, encoder/1/weight_1", "b, encoder/1/weight_1"], 1),
    ],
)
def test_a_panel_for_each_quantity_and_axis(runs: list[LoggedRun], quantity: str, labels: list[str], bands: int):
    figure = draw_figure(runs, [quantity, "perplexity"], ["updates", "minutes"])
    axes, by_minutes, *_ = figure.axes
    assert len(figure.axes) == 4
    assert [len(line.get_xdata()) for line in axes.lines] == [2] * len(labels)
    assert [line.get_label() for line in axes.lines] == labels
    assert len(axes.collections) == bands  # least to greatest, where there are several seeds
    assert [panel.get_xlabel() for panel in (axes, by_minutes)] == ["updates", "minutes of training"]
    assert all(tick == int(tick) for tick in axes.get_xticks())


def test_the_title_names_a_single_system(runs: list[LoggedRun]):
    figure = draw_figure(runs[:2], ["loss"], ["updates"])
    assert figure.get_suptitle() == "a (2 runs)"
    assert [line.get_label() for line in figure.axes[0].lines] == ["training", "validation"]


def test_without_matplotlib(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    log = write(tmp_path / "log", train(10, 20))
    assert main(["analyse", "curves", str(log), "--csv", str(tmp_path / "a.csv")]) == 0  # needs no plots
    assert main(["analyse", "curves", str(log), "--output", str(tmp_path / "a.png")]) == 2
    assert "plots need matplotlib: pip install 'ode-transformer[plots]'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["{log}"], "nothing to write"),
        (["absent.log", "--csv", "a.csv"], "absent.log: No such file"),
        (["{folder}", "--csv", "a.csv"], "neither train.log nor TensorBoard's files (train_inner/events"),
        (
            ["{log}", "--output", "{folder}/a.png", "--what", "lost"],
            "--what lost: expected loss, perplexity, gradient-",
        ),
        (["{log}", "--output", "{folder}/a.png", "--what", "gradient-norm"], "no gradient-norm in its reports, so no"),
        (
            ["{log}", "--output", "{folder}/a.png", "--what", "depth/*"],
            "logged by layer: train with --log-depth-interv",
        ),
        (["{deep}", "--output", "{folder}/a.png", "--what", "depth/encoder/9*"], "no run has it; known are depth/enc"),
        (["{timeless}", "--output", "{folder}/a.png", "--by", "epochs"], "no epochs in its reports, so no --what loss"),
        (["{log}", "--csv", "absent/a.csv"], "absent/a.csv: not a file in an existing directory"),
    ],
)
def test_wrong_options(tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str):
    paths = {
        "log": write(tmp_path / "log", train(10, 20)),
        "deep": write(tmp_path / "deep", train(10, 20, extra=', "depth/encoder/1/weight_1": "0.5"')),
        "timeless": write(tmp_path / "timeless", train(10, 20).replace('"update": 0.5, ', "")),
        "folder": tmp_path / "folder",
    }
    paths["folder"].mkdir()
    assert main(["analyse", "curves", *(argument.format(**paths) for argument in arguments)]) == 2
    assert list(paths["folder"].iterdir()) == []
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
