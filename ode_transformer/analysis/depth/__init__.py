"""Stage weights, gradient norms and truncation errors by layer."""
