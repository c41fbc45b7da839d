"""Many experiments side by side: tables and plots."""
