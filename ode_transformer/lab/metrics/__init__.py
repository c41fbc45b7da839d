"""Scores of a system's output, and the significance of differences between systems."""
