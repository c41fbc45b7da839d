"""Pages to look at: a report of runs and studies, and the page and endpoint of a server."""
