"""Measurements by layer: stage weights, gradient norms, truncation and splitting errors; the table of choices."""
