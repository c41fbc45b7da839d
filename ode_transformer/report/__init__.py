"""Pages to look at: a report of runs and studies, and the look that other pages share."""
