"""Trained models at work: translation, teacher forcing, attention maps."""
