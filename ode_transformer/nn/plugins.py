"""Packages of users that add schemes, by an entry point of the group ``ode_transformer.plugins``."""

from functools import cache
from importlib.metadata import entry_points


@cache
def load_plugins() -> None:
    """Import each installed package that names itself, once in a process."""
    for plugin in entry_points(group="ode_transformer.plugins"):
        plugin.load()
