"""``python -m ode_transformer.cli``: the ``ode-transformer`` command without an installed script."""

import sys

from ode_transformer.cli.command import main

sys.exit(main())
