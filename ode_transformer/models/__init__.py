"""Models of fairseq; importing this package, as ``--user-dir`` does, registers whatever the package adds to fairseq."""

import ode_transformer.models.saved_options  # noqa: F401  (lets fairseq read options, once they are checked)
import ode_transformer.tasks.joint_translation  # noqa: F401
import ode_transformer.tasks.symmetric_sentence_prediction  # noqa: F401
import ode_transformer.training.adam  # noqa: F401
import ode_transformer.training.criteria  # noqa: F401
from ode_transformer.models import dlstm, macaron  # noqa: F401
from ode_transformer.models.bert import ODEBertModel
from ode_transformer.models.language_model import ODELanguageModel
from ode_transformer.models.ode_transformer import ODETransformerModel
from ode_transformer.models.reformer import ReformerModel

__all__ = ["ODEBertModel", "ODELanguageModel", "ODETransformerModel", "ReformerModel"]
