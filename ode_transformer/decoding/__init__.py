"""Trained models at work: translation, teacher forcing, attention maps. ``loading.load`` opens a model's folder."""
