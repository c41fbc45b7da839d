"""Linear probe: layers of a trained model are replaced by linear maps (Xu et al. 2020)."""
