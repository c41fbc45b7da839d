"""Trained translation models for other libraries: folders that they load without this package."""
