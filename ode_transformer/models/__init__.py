"""Models of fairseq; importing this package, as ``--user-dir`` does, registers whatever the package adds to fairseq.

Installed packages can add more: each entry point of the group ``ode_transformer.plugins`` is imported last.
"""

from importlib.util import find_spec

from ode_transformer.support.errors import FAIRSEQ_MISSING

if find_spec("fairseq") is None:
    raise ModuleNotFoundError(FAIRSEQ_MISSING, name="fairseq")

from ode_transformer.models import adam, criteria, fairseq_corrections, late_norm, tasks  # noqa: F401
from ode_transformer.models.bert import ODEBertModel
from ode_transformer.models.fairseq_corrections.replacing import warn_of_another_version
from ode_transformer.models.ode_transformer import ODELanguageModel, ODETransformerModel
from ode_transformer.models.reformer import ReformerModel
from ode_transformer.nn.plugins import load_plugins

__all__ = ["ODEBertModel", "ODELanguageModel", "ODETransformerModel", "ReformerModel"]

warn_of_another_version()
load_plugins()
