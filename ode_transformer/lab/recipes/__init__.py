"""Recipes, and the steps from raw text to scores."""
