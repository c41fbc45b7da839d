"""Names of all architectures by task, and of all schemes, for refusals before fairseq is imported."""

import ode_transformer.models  # noqa: F401  (registers ours)
from ode_transformer.lab.recipes.recipe import architectures
from ode_transformer.nn import depth_schemes


def name_lists() -> str:
    """Return a line for each kind and registering package: task or scheme, package or fairseq, names."""
    lines = [f"scheme package {' '.join(depth_schemes())}\n"]
    for task in ("translation", "language_modeling", "masked_lm"):
        names = architectures(task)
        for owner, is_ours in (("package", True), ("fairseq", False)):
            lines.append(" ".join([task, owner, *(name for name in names if names[name] == is_ours)]) + "\n")
    return "".join(lines)


if __name__ == "__main__":
    print(name_lists(), end="")
