"""The file ``configs/glue.yaml``: grid, common flags and published scores."""

from typing import Annotated

from pydantic import Field

from ode_transformer.lab.recipes.recipe import Flags, FlagValue
from ode_transformer.support.errors import UserError
from ode_transformer.support.yaml_file import CONFIGS, YamlSection

CONFIG = CONFIGS / "glue.yaml"


class PublishedGlue(YamlSection):
    """Published scores of a system on the test sets.

    :param arch: the architecture that stands for the system
    :param scores: metrics of each submitted file, in the order of the task's
    """

    table: str
    system: str
    arch: str
    scores: dict[str, list[float]]


class GlueConfig(YamlSection):
    """Grid and common flags.

    :param symmetric: tasks whose pairs have no order: in training their texts change places by chance
    :param grid: flags of fairseq-train, each with the values to try; batch-size, lr and max-epoch at least
    """

    pretraining: str = "bert_pretraining"
    arch: str = "macaron_bert_base"
    symmetric: list[str] = []
    grid: dict[str, Annotated[list[FlagValue], Field(min_length=1)]]
    train: Flags
    expected: list[PublishedGlue] = []

    def systems_of(self, table: str) -> list[str]:
        """Return the architectures of a published table."""
        if archs := [entry.arch for entry in self.expected if entry.table == table]:
            return archs
        tables = "; ".join(dict.fromkeys(entry.table for entry in self.expected))
        raise UserError(f"--table {table}: not among the published results of glue: {tables or 'it has none'}")
