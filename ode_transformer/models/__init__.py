"""Models of fairseq; importing this package, as ``--user-dir`` does, registers whatever the package adds to fairseq."""

from ode_transformer.models import adam, criteria, tasks  # noqa: F401
from ode_transformer.models.bert import ODEBertModel
from ode_transformer.models.language_model import ODELanguageModel
from ode_transformer.models.ode_transformer import ODETransformerModel
from ode_transformer.models.reformer import ReformerModel

__all__ = ["ODEBertModel", "ODELanguageModel", "ODETransformerModel", "ReformerModel"]
