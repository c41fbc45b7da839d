"""Comparison of several translation systems on one test set."""
