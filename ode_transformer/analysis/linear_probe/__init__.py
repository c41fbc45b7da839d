"""Layers of a trained model replaced by linear maps (Xu et al. 2020)."""
