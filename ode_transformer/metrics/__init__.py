"""Measures of a system's output, and the significance of differences."""
