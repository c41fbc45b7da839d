"""Transformers whose stacks of layers are read as numerical solutions of an ordinary differential equation."""

__version__ = "0.2.0"
