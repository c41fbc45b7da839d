"""Names of all architectures by task, for refusals before fairseq is imported."""

import ode_transformer.models  # noqa: F401  (registers ours)
from ode_transformer.lab.recipes.recipe import architectures


def architecture_lists() -> str:
    """Return a line for each task and registering package: task, package or fairseq, names."""
    lines = []
    for task in ("translation", "language_modeling", "masked_lm"):
        names = architectures(task)
        for owner, is_ours in (("package", True), ("fairseq", False)):
            lines.append(" ".join([task, owner, *(name for name in names if names[name] == is_ours)]) + "\n")
    return "".join(lines)


if __name__ == "__main__":
    print(architecture_lists(), end="")
