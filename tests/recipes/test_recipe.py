from pathlib import Path

import pytest

from ode_transformer.errors import UserError
from ode_transformer.recipes.quickstart import CONFIGS
from ode_transformer.recipes.recipe import read_recipe

GOOD = "packages: p.txt\narch: a\nminutes: 1\naverage: 2\nmetrics: [bleu]\n"


@pytest.mark.parametrize("task", ["text", "g2p"])
def test_shipped_recipes(task: str) -> None:
    recipe = read_recipe(CONFIGS / f"quickstart_{task}.yaml")
    assert recipe.packages.is_file()
    assert recipe.vocabulary is None or recipe.vocabulary <= 4000


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (GOOD + "colour: red\n", r"unknown \['colour'\]; known keys are arch, average"),
        (GOOD.replace("arch: a\n", ""), "arch is missing"),
        (GOOD.replace("bleu", "beauty"), r"unknown metrics \['beauty'\]; known are bleu"),
        (GOOD.replace("packages: p.txt\n", ""), "packages is missing"),
        (GOOD.replace("minutes: 1", "minutes: 0"), "minutes must be a positive number, not 0"),
        (GOOD.replace("average: 2", "average: few"), "average must be a positive number, not 'few'"),
        ("just a line", "unknown just a line"),
        ("a: [", "cannot be read as YAML"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "recipe.yaml"
    path.write_text(text)
    with pytest.raises(UserError, match=message) as raised:
        read_recipe(path)
    assert str(raised.value).startswith(str(path))


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"none\.yaml: cannot be read"):
        read_recipe(tmp_path / "none.yaml")
