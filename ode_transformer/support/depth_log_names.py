"""Parts of names under which ``--log-depth-interval`` logs numbers by layer and ``--log-samples`` translations.

They are for those that write and those that read a log.
"""

SAMPLES = "samples"
PREFIX = "depth/"
GRADIENT_NORM = "gradient_norm"
