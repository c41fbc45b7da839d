"""Corpora and the steps from text to scores."""
