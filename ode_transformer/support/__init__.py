"""Files, console, resumable jobs, tables, YAML and command-line arguments: imports nothing else of the package."""
