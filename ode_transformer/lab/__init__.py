"""The laboratory: data, recipes, studies, scores, measurements, pages. It imports the plugin, never the other way."""
