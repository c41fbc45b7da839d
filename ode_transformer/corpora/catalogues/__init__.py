"""Corpus from the gettext catalogues of Python packages."""
