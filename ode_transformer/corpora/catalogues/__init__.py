"""Gettext catalogues of Python packages as a corpus."""
