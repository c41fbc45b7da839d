"""Corpora: where their raw files come from, how these are read, and what is done to each line."""
