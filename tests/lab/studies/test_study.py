"""What a study's file may say, and what is trained for it."""

import argparse
from pathlib import Path

import pytest
import yaml
from models_for_tests import count_parameters, model_key

from ode_transformer.decoding.operations import count_forward_operations
from ode_transformer.lab.recipes.options import RunOptions
from ode_transformer.lab.studies import find_study, study_names
from ode_transformer.lab.studies.run_study import claim_results
from ode_transformer.lab.studies.study import read_study
from ode_transformer.lab.studies.study_runs import StudyRuns
from ode_transformer.models.model_from_options import build_outline
from ode_transformer.support.errors import UserError

SMALL = {
    "title": "A question",
    "source": "a paper",
    "settings": {
        "paper": {"recipe": "wmt14_en_de", "size": "wmt_en_de"},
        "here": {
            "recipe": "multi30k_en_de",
            "size": "tiny",
            "values": [2],
            "flags": {"lr": 0.1, "clip-norm": 0.0},
            "sizes": {"dropout": 0.2},
        },
    },
    "seeds": [1, 2],
    "axis": {"name": "layers", "flags": ["encoder-layers"], "values": [6, 12]},
    "systems": [
        {"name": "plain", "arch": "ode_transformer_euler_{size}"},
        {"name": "deep", "arch": "ode_transformer_euler_{size}", "depth": 2, "control": "compute"},
        {"name": "RK2", "arch": "ode_transformer_rk2_{size}", "flags": {"dropout": 0.3}},
        {"name": "RK4", "arch": "ode_transformer_rk4", "only": ["here"]},
    ],
}


def written(folder: Path, **changes: object) -> Path:
    path = folder / "small.yaml"
    path.write_text(yaml.safe_dump(SMALL | changes, sort_keys=False))
    return path


def study_runs(path: Path, setting: str, folder: Path) -> StudyRuns:
    return StudyRuns(read_study(path), setting, RunOptions(output=folder, gpus=0, dry_run=True))


def test_what_is_trained(tmp_path: Path) -> None:
    """Flags say only what is not so anyway: 6 layers at the paper's setting; here 4 of them, and the clip norm.

    Sizes of the setting are for the architecture that has none of them in its name.
    """
    words = {
        setting: {str(row): " ".join([row.arch(made.setting), *made.train_flags(row)]) for row in made.rows}
        for setting in ("paper", "here")
        for made in [study_runs(written(tmp_path), setting, tmp_path)]
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
        "plain, 2": "ode_transformer_euler_tiny --lr 0.1 --encoder-layers 2",
        "deep, 2": "ode_transformer_euler_tiny --lr 0.1",
        "RK2, 2": "ode_transformer_rk2_tiny --dropout 0.3 --lr 0.1 --encoder-layers 2",
        "RK4, 2": "ode_transformer_rk4 --lr 0.1 --dropout 0.2 --encoder-layers 2",
    }


def test_published_scores_belong_to_the_same_setting_on_the_axis(tmp_path: Path) -> None:
    systems = [SMALL["systems"][0], {"name": "RK2", "arch": "ode_transformer_rk2_{size}"}]
    own = written(tmp_path, systems=systems, tables=["Li et al. 2022, Table 10"])  # which comes first
    assert study_runs(own, "here", tmp_path).published_scores()["RK2", 0].scores == {"BLEU": 28.86}
    for setting, value in (("paper", 6), ("here", 2)):
        made = study_runs(written(tmp_path, systems=systems), setting, tmp_path)
        found = made.published_scores()
        rows = {str(row): found.get(row.key) for row in made.rows}
        entry = rows[f"RK2, {value}"]
        assert (entry.recipe, entry.scores, entry.value) == ("wmt14_en_de", {"BLEU": 28.89, "SacreBLEU": 27.7}, 6)


def test_a_study_of_the_same_name_replaces_no_results(tmp_path: Path) -> None:
    own, folder = tmp_path / "mine" / "coefficients.yaml", tmp_path / "results" / "coefficients-g2p"
    claim_results(folder, find_study("coefficients"))
    claim_results(folder, find_study("coefficients"))
    with pytest.raises(UserError, match="has the results of another study, coefficients; choose another --output"):
        claim_results(folder, own)


# -- those of configs/studies -------------------------------------------------------------------------------------


costs: dict[tuple[str, ...], dict[str, int]] = {}  # by model_key: studies share systems


def costs_of(args: argparse.Namespace, kind: str) -> int:
    """Return parameters or operations of a model."""
    known = costs.setdefault(model_key(args), {})
    if kind not in known:
        model = build_outline(args, (100, 100))
        known[kind] = count_forward_operations(model) if kind == "compute" else count_parameters(model)
    return known[kind]


# The last setting of each study is small.
CONTROLLED = [
    pytest.param(name, setting, marks=[] if setting == list(chosen.settings)[-1] else pytest.mark.slow)
    for name, chosen in ((name, read_study(find_study(name))) for name in study_names())
    if any(system.control for system in chosen.systems)
    for setting in chosen.settings
]


@pytest.mark.parametrize(("name", "setting"), CONTROLLED)
def test_controls_cost_what_they_say(name: str, setting: str, tmp_path: Path) -> None:
    """Within 20% of the compute or parameters of all that are compared with them, at the first value of the axis."""
    chosen = read_study(find_study(name))
    made = study_runs(find_study(name), setting, tmp_path)
    controls = {system.name: system.control for system in chosen.systems if system.control}
    pairs = [(system.name, name) for system in chosen.systems for name in controls if name in system.against]
    assert {control for _, control in pairs} == set(controls)
    args = {
        row.system.name: argparse.Namespace(**vars(made.experiments(row, (1,))[0].train_settings))
        for row in chosen.rows(setting)
        if row.position == 0 and any(row.system.name in pair for pair in pairs)
    }
    compared = set()
    for system, control in pairs:
        if system in args:
            ratio = costs_of(args[control], controls[control]) / costs_of(args[system], controls[control])
            assert abs(ratio - 1) < 0.2, (setting, system, control, ratio)
            compared.add(control)
    assert compared == set(controls)
