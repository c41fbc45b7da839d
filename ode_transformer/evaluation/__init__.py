"""From checkpoints to scores: averaging and the measures of a system's output."""
