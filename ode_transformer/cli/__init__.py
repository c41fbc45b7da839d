"""The ``ode-transformer`` command."""

from ode_transformer.cli.command import main

__all__ = ["main"]
