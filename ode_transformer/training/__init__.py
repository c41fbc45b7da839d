"""Optimizer and criteria that are added to fairseq's; ``--user-dir`` imports them.

Each computes what its counterpart of fairseq computes, to rounding, in fewer passes over memory.
"""

# Value of --optimizer or --criterion -> fairseq's counterpart, whose checkpoints it resumes, and the other way round.
COUNTERPARTS = {
    "fused_adam": "adam",
    "fused_label_smoothed_cross_entropy": "label_smoothed_cross_entropy",
    "fused_cross_entropy": "cross_entropy",
}
