"""Tasks of fairseq that models of ours need; ``--user-dir`` imports them."""
