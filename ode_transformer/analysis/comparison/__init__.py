"""Translations of several systems side by side."""
