"""Measurements on trained models and their logs, and plots."""
