"""The architectures that fairseq knows once ours are registered."""

from __future__ import annotations


def architectures(task: str) -> dict[str, bool]:
    """Names of those for a task, and whether they are ours."""
    from fairseq.models import ARCH_MODEL_REGISTRY, FairseqEncoderDecoderModel, FairseqLanguageModel

    import ode_transformer.models  # noqa: F401

    kind = {"translation": FairseqEncoderDecoderModel, "language_modeling": FairseqLanguageModel}[task]
    return {
        name: model.__module__.startswith("ode_transformer.")
        for name, model in sorted(ARCH_MODEL_REGISTRY.items())
        if issubclass(model, kind)
    }


def ours(task: str) -> list[str]:
    return [name for name, own in architectures(task).items() if own]
