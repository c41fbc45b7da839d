"""What fairseq imports on ``--user-dir``: registers every model and task, and lets their checkpoints load."""

import ode_transformer.support.checkpoint_file  # noqa: F401  (fairseq's own loading needs the class that it allows)
import ode_transformer.tasks.joint_translation  # noqa: F401
from ode_transformer.models import dlstm, macaron  # noqa: F401
from ode_transformer.models.bert import ODEBertModel
from ode_transformer.models.language_model import ODELanguageModel
from ode_transformer.models.ode_transformer import ODETransformerModel
from ode_transformer.models.reformer import ReformerModel

__all__ = ["ODEBertModel", "ODELanguageModel", "ODETransformerModel", "ReformerModel"]
