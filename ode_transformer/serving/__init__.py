"""A server on this machine: a page to try models, and an endpoint that translates."""
