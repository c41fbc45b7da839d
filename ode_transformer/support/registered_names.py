"""Names of architectures and schemes, to refuse others before PyTorch and fairseq are imported, which takes seconds."""

import sys
from importlib.metadata import entry_points

from ode_transformer.support.errors import UserError, did_you_mean
from ode_transformer.support.yaml_file import CONFIGS

NAMES = CONFIGS / "names.txt"  # of docs/generate.py; each line: a task or scheme, fairseq or package, names


def written_names(kind: str) -> dict[str, bool] | None:
    """Return the names of a kind, each with whether this package registers it.

    None once fairseq is imported, as for a user's package, or if an installed package may register others.
    """
    if "fairseq" in sys.modules or entry_points(group="ode_transformer.plugins"):
        return None
    lines = (line.split() for line in NAMES.read_text(encoding="utf-8").splitlines())
    return {name: owner == "package" for line_kind, owner, *names in lines if line_kind == kind for name in names}


def check_scheme(name: str, flag: str) -> None:
    """Refuse what is no scheme; what :func:`written_names` leaves open is refused by the model's own options."""
    names = written_names("scheme")
    if names is not None and name not in names:
        raise UserError(f"{flag} {name}: no scheme{did_you_mean(name, names)}; there are {', '.join(names)}")
