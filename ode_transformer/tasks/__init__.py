"""Tasks that are added to fairseq's; ``--user-dir`` imports them."""
