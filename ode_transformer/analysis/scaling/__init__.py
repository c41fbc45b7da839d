"""Model scaling: where more parameters are worth most, in depth or in width (Reformer, Li et al. 2020, Eqs. 8-11)."""
