"""Registration of the named architectures with fairseq."""

import argparse
from collections.abc import Mapping
from typing import Any

from fairseq.models import register_model_architecture
from fairseq.models.roberta import base_architecture as roberta_architecture
from fairseq.models.transformer.transformer_legacy import base_architecture

from ode_transformer.models.depth_options import set_defaults
from ode_transformer.nn import ARCHITECTURES, Architecture, complete_options


def complete_arguments(args: argparse.Namespace, model: str) -> None:
    """Set what is still open to the defaults of a model.

    :param model: a key of ``nn.architectures.MODELS``
    """
    set_defaults(args, **complete_options(model, vars(args)))
    (roberta_architecture if model == "ode_bert" else base_architecture)(args)


def register_architecture(name: str, options: Mapping[str, Any], model: str = "ode_transformer") -> None:
    """Register an architecture with fairseq.

    :param options: values for what the command line leaves open
    :param model: sets what ``options`` leave open
    """

    def set_options(args: argparse.Namespace) -> None:
        if getattr(args, "relu_dropout", None) is not None:  # the old name of activation_dropout
            set_defaults(args, activation_dropout=args.relu_dropout)
        set_defaults(args, **options)
        complete_arguments(args, model)

    register_model_architecture(model, name)(set_options)
    ARCHITECTURES.setdefault(name, Architecture(model, options))


def register_architectures(model: str) -> None:
    """Register all architectures of a model of this package."""
    for name, architecture in list(ARCHITECTURES.items()):
        if architecture.model == model:
            register_architecture(name, architecture.options, model)
