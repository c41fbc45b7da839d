"""What a study's file may say, and what is trained for it."""

import argparse
from pathlib import Path

import pytest
import yaml

from ode_transformer.errors import UserError
from ode_transformer.models.bare import bare_model, operations
from ode_transformer.recipes import fairseq_flags, runner, study
from ode_transformer.recipes.study import read_study
from ode_transformer.recipes.study_runner import Trials, main, recipe_at

SMALL = {
    "title": "A question",
    "source": "a paper",
    "places": {
        "paper": {"recipe": "wmt14_en_de", "size": "wmt_en_de"},
        "here": {
            "recipe": "multi30k_en_de",
            "size": "tiny",
            "values": [2],
            "flags": {"dropout": 0.2, "clip-norm": 0.0},
        },
    },
    "seeds": [1, 2],
    "axis": {"name": "layers", "flags": ["encoder-layers"], "values": [6, 12]},
    "systems": [
        {"name": "plain", "arch": "ode_transformer_euler_{size}"},
        {"name": "deep", "arch": "ode_transformer_euler_{size}", "depth": 2, "control": "compute"},
        {"name": "RK2", "arch": "ode_transformer_rk2_{size}", "flags": {"dropout": 0.3}},
        {"name": "RK4", "arch": "ode_transformer_rk4_{size}", "only": ["here"]},
    ],
}


def written(folder: Path, **changes: object) -> Path:
    path = folder / "small.yaml"
    path.write_text(yaml.safe_dump(SMALL | changes, sort_keys=False))
    return path


def trials(path: Path, place: str, folder: Path) -> Trials:
    args = argparse.Namespace(output=folder, seeds=None, gpus=0, precision=None, max_tokens=None, dry_run=True)
    chosen = read_study(path)
    return Trials(args, chosen, place, recipe_at(chosen, place))


def test_what_is_trained(tmp_path: Path) -> None:
    """Flags say only what is not so anyway: 6 layers at the paper's place; here 4 of them, and the clip norm."""
    words = {
        place: {str(cell): " ".join([cell.arch(made.place), *made.extra(cell)]) for cell in made.study.cells(place)}
        for place in ("paper", "here")
        for made in [trials(written(tmp_path), place, tmp_path)]
    }
    euler, rk2 = "ode_transformer_euler_wmt_en_de", "ode_transformer_rk2_wmt_en_de"
    assert words["paper"] == {
        "plain, 6": euler,
        "deep, 6": f"{euler} --encoder-layers 12",
        "RK2, 6": f"{rk2} --dropout 0.3",
        "plain, 12": f"{euler} --encoder-layers 12",
        "deep, 12": f"{euler} --encoder-layers 24",
        "RK2, 12": f"{rk2} --dropout 0.3 --encoder-layers 12",
    }
    assert words["here"] == {
        "plain, 2": "ode_transformer_euler_tiny --dropout 0.2 --encoder-layers 2",
        "deep, 2": "ode_transformer_euler_tiny --dropout 0.2",
        "RK2, 2": "ode_transformer_rk2_tiny --dropout 0.3 --encoder-layers 2",
        "RK4, 2": "ode_transformer_rk4_tiny --dropout 0.2 --encoder-layers 2",
    }


def test_a_run_is_that_of_the_training_script(tmp_path: Path) -> None:
    made = trials(written(tmp_path), "here", tmp_path)
    first, second = made.experiments(next(made.study.cells("here")))
    assert first.run == tmp_path / "multi30k_en_de" / "ode_transformer_euler_tiny-seed-1-dropout-0.2-encoder-layers-2"
    assert (first.seed, second.seed) == (1, 2)


def test_published_scores_belong_to_the_same_place_on_the_axis(tmp_path: Path) -> None:
    systems = [SMALL["systems"][0], {"name": "RK2", "arch": "ode_transformer_rk2_{size}"}]
    for place, value in (("paper", 6), ("here", 2)):
        made = trials(written(tmp_path, systems=systems), place, tmp_path)
        found = made.published()
        cells = {str(cell): found.get(cell.key) for cell in made.study.cells(place)}
        entry = cells[f"RK2, {value}"]
        assert (entry.title, entry.score, entry.value) == ("BLEU", 28.89, 6)


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"seed": [1]}, "seed: unknown key"),
        ({"seeds": [1, 1]}, "seeds: a seed stands twice"),
        ({"seeds": []}, "seeds: list should have at least 1 item"),
        ({"systems": SMALL["systems"][:1]}, "systems: list should have at least 2 items"),
        ({"systems": SMALL["systems"][:2] * 2}, "systems.2.name: two systems are called plain"),
        ({"systems": [*SMALL["systems"], {"name": "x", "arch": "y", "only": ["there"]}]}, "no place is called there"),
        ({"systems": SMALL["systems"][1:]}, "systems.0: the baseline is compared with everywhere"),
        ({"systems": [*SMALL["systems"], {"name": "x", "arch": "y", "control": "time"}]}, "systems.4.control: 'time'"),
        ({"axis": None}, "places.here.values: the study has no axis"),
    ],
)
def test_a_wrong_file(changes: dict, complaint: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"small.yaml:\d+: ") as error:
        read_study(written(tmp_path, **changes))
    assert complaint in str(error.value)


@pytest.mark.parametrize(
    ("words", "changes", "complaint"),
    [
        (["none"], {}, "none: no such study; there are coefficients, "),
        ([None, "--at", "nowhere"], {}, "--at nowhere: the places of "),
        ([None, "--systems", "LSTM*"], {}, "--systems LSTM*: no name of a system matches; there are plain, deep, RK2"),
        ([None, "--seeds", "1,x"], {}, "1,x: expected whole numbers divided by commas"),
        (
            [None],
            {"systems": [{"name": "a", "arch": "x_{size}"}, {"name": "b", "arch": "y"}]},
            "a, 6: arch x_wmt_en_de",
        ),
        ([None], {"systems": [*SMALL["systems"][:1], {**SMALL["systems"][1], "flags": {"no-flag": 1}}]}, "--no-flag"),
    ],
)
def test_a_wrong_command(words: list, changes: dict, complaint: str, tmp_path: Path, capsys) -> None:
    path = written(tmp_path, **changes)
    command = [str(word or path) for word in words] + ["--output", str(tmp_path / "out"), "--gpus", "0"]
    try:
        status = main(command)
    except SystemExit as exit:
        status = exit.code
    assert status == 2
    assert complaint in capsys.readouterr().err.splitlines()[-1]
    assert not (tmp_path / "out").exists()


# -- those of configs/studies -------------------------------------------------------------------------------------

PLACES = [(name, place) for name in study.names() for place in read_study(study.find(name)).places]


def test_those_that_are_there() -> None:
    wanted = {"truncation", "schemes", "coefficients", "depth", "size", "function_scope", "function"}
    assert set(study.names()) == wanted | {"dlstm_parts", "dlstm_depth", "reformer"}


@pytest.mark.slow
@pytest.mark.parametrize(("name", "place"), PLACES)
def test_fairseq_takes_every_command(name: str, place: str, tmp_path: Path) -> None:
    """And at one value of the axis no two systems are the same; at another, a control may be what a system is here."""
    made = trials(study.find(name), place, tmp_path)
    runs = [(cell.value, experiment.run) for cell in made.study.cells(place) for experiment in made.experiments(cell)]
    assert len(set(runs)) == len(runs)


@pytest.mark.parametrize("name", [name for name in study.names() if name != "reformer"])
def test_controls_cost_what_they_say(name: str, tmp_path: Path) -> None:
    """At the smallest place and the first value: within 15% of the compute or parameters of another system."""
    chosen = read_study(study.find(name))
    place = list(chosen.places)[-1]
    made = trials(study.find(name), place, tmp_path)
    first = next(chosen.cells(place)).value
    costs = {}
    for cell in chosen.cells(place):
        if cell.value == first:
            args = fairseq_flags.parse("fairseq-train", runner.words_of(made.experiments(cell)[0]))
            model = bare_model(args, 100)
            costs[cell.system.name] = {
                "parameters": sum(parameter.numel() for parameter in model.parameters()),
                "compute": operations(model),
            }
    systems = {system.name: system.control for system in chosen.systems if system.name in costs}
    controls = {name: control for name, control in systems.items() if control}
    assert "compute" in controls.values()
    for name, control in controls.items():
        beside = [costs[other][control] for other, is_control in systems.items() if is_control is None]
        assert any(abs(costs[name][control] / cost - 1) < 0.15 for cost in beside), name
