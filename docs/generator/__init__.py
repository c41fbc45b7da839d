"""Pages of docs that are written from the package: its flags, schemes, combinations and experiments."""
