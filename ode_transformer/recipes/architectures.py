"""The architectures that fairseq knows once those of this package are registered."""

from __future__ import annotations

from ode_transformer.support.errors import UserError, did_you_mean


def architectures(task: str) -> dict[str, bool]:
    """Return the names of the architectures for a task, each with whether this package registers it."""
    from fairseq.models import ARCH_MODEL_REGISTRY, FairseqEncoderDecoderModel, FairseqLanguageModel
    from fairseq.models.roberta import RobertaModel

    from ode_transformer.checkpoints.reading import is_of_this_package

    kind = {
        "translation": FairseqEncoderDecoderModel,
        "language_modeling": FairseqLanguageModel,
        "masked_lm": RobertaModel,
    }[task]
    return {
        name: is_of_this_package(name) for name, model in sorted(ARCH_MODEL_REGISTRY.items()) if issubclass(model, kind)
    }


def package_architectures(task: str) -> list[str]:
    """Return the names of this package's architectures for a task."""
    return [name for name, in_package in architectures(task).items() if in_package]


def check_architecture(arch: str, task: str, source: str) -> None:
    """Refuse an architecture that is unknown or unsuitable for a task.

    :param source: what names the architecture, for the error: a flag or a key
    :raises UserError: it lists this package's architectures for the task
    """
    if arch not in architectures(task):
        names = ", ".join(package_architectures(task))
        similar = did_you_mean(arch, architectures(task))
        raise UserError(f"{source}: no architecture for {task}{similar}; ours are {names}")
