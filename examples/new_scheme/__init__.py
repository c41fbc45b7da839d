"""A scheme of your own: Heun's scheme of order 3, as ``heun3``.

    ode-transformer quickstart --user-dir examples/new_scheme --scheme heun3

This folder is a package for ``--user-dir`` of every ``ode-transformer`` command, and of fairseq's own commands:

    fairseq-train data --user-dir examples/new_scheme --arch ode_transformer_euler_tiny --encoder-ode-scheme heun3 ...
"""

import sys

from ode_transformer.numerics import ButcherTableau, register_tableau

if "fairseq" in sys.modules:  # whose own commands need the architectures
    import ode_transformer.models  # noqa: F401

register_tableau(
    ButcherTableau(
        name="heun3",
        order=3,
        a=((), (1 / 3,), (0, 2 / 3)),
        b=(1 / 4, 0, 3 / 4),
        c=(0, 1 / 3, 2 / 3),
        source="Heun 1900",
    )
)
