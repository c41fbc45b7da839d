"""Averaging of checkpoints, and conversion of released weights."""
