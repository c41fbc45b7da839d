"""Averaging and verification of checkpoints, and conversion of released weights."""
