"""Imported by the fork server after fairseq: what parsers of options learn by the first, all forks have."""

import warnings

from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.options import get_training_parser, parse_args_and_arch

with warnings.catch_warnings():  # once in a process: those of a fork are still to come
    warnings.simplefilter("ignore")
    words = ["data", "--arch", "transformer", "--optimizer", "adam", "--lr-scheduler", "inverse_sqrt"]
    convert_namespace_to_omegaconf(parse_args_and_arch(get_training_parser(), words))
