"""Models of fairseq; importing this package, as ``--user-dir`` does, registers whatever the package adds to fairseq."""

from ode_transformer.models import (  # noqa: F401
    adam,
    criteria,
    dlstm,
    joint_translation,
    macaron,
    symmetric_sentence_prediction,
)
from ode_transformer.models.bert import ODEBertModel
from ode_transformer.models.language_model import ODELanguageModel
from ode_transformer.models.ode_transformer import ODETransformerModel
from ode_transformer.models.reformer import ReformerModel

__all__ = ["ODEBertModel", "ODELanguageModel", "ODETransformerModel", "ReformerModel"]
