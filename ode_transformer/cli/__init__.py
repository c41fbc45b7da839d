"""The ``ode-transformer`` command."""
