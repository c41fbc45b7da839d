"""Training and validation curves."""
