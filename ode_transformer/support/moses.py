"""What Moses' tokenizer does and sacremoses does not."""

import re

_LAST_FULL_STOP = re.compile(r"(?<=[^\s.])\.$")


def split_last_full_stop(tokens: str) -> str:
    """Return a line of tokens in which the last word, be it an abbreviation, has no full stop: ``A.`` becomes ``A .``

    Moses does so since November 2018 (its pull request 204); sacremoses keeps to the rule before.
    """
    return _LAST_FULL_STOP.sub(" .", tokens)
