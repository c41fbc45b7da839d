"""Scores beside the published ones."""

from ode_transformer.lab.metrics.metric import Score
from ode_transformer.lab.recipes.options import find_recipe
from ode_transformer.lab.recipes.published import comparison_table
from ode_transformer.lab.recipes.recipe import read_recipe
from ode_transformer.support import commands


def bleu(value: float) -> dict[str, Score]:
    return {"BLEU": Score("BLEU", value, "signature", "detail", 1000)}


def test_results_beside_the_published_ones() -> None:
    own = read_recipe(find_recipe("multi30k_en_de")).for_arch("transformer")
    (result,) = own.expected
    size = commands.flags(result.flags)
    table = comparison_table(own, None, size, {1: bleu(40.0), 2: bleu(42.0)})
    assert [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines()[2:]] == [
        ["seed 1", "40.00"],
        ["seed 2", "42.00"],
        ["mean", "41.00"],
        ["standard deviation", "1.41"],
        ["Wu et al. 2021: Transformer-Tiny, text only", "41.02"],
    ]
    # Other flags are not the published system.
    assert "Wu et al." not in comparison_table(own, None, [*size, "--dropout", "0.2"], {None: bleu(40.0)})
    assert "Wu et al." not in comparison_table(own, None, [], {None: bleu(40.0)})
