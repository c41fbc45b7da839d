"""Errors caused by the user's input."""

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches

FAIRSEQ_MISSING = (
    "fairseq is not installed: its wheels, ve-fairseq==0.12.3, are for Python 3.11 and 3.12 on Linux x86-64; without "
    "it trained models can be used (translate, serve, export) and none can be trained"
)


class UserError(Exception):
    """A file or option of the user is wrong.

    The message names the file or option and fits on one line; commands print it without a traceback.
    """


class LockedError(UserError):
    """Another process works in a folder."""


class DamagedCheckpoint(UserError):
    """A checkpoint is broken or truncated."""


def printable_line(text: object) -> str:
    """Return a text that came from outside in one line, without control characters that would change a terminal."""
    return "".join(sign if sign.isprintable() else "�" for sign in " ".join(str(text).split()))


def one_line(text: object, length: int = 200) -> str:
    """Return :func:`printable_line` of limited length, for a message, with an ellipsis if that is not all."""
    line = printable_line(text)
    return line if len(line) <= length else f"{line[:length]}…"


def describe(error: BaseException) -> str:
    """Return the kind of a library's error, its message, and the system's reason, which PyTorch leaves out."""
    reason = getattr(error.__context__, "strerror", None)  # such as a full disk
    return f"{type(error).__name__}: {error}" + (f": {reason}" if reason else "")


def list_numbers(numbers: Sequence[int], count: int = 5) -> str:
    """Return the first numbers, such as those of lines, with an ellipsis if that is not all."""
    return ", ".join(map(str, numbers[:count])) + " …" * (len(numbers) > count)


class OptionError(SystemExit, ValueError):
    """Options of a model are out of range or do not go together; the message names the flag and fits on one line.

    As a ``SystemExit`` it ends fairseq's commands with this line and status 1, without a traceback; as a ``ValueError``
    it can be caught by a program that builds models.
    """

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.code = f"error: {message}"  # what the interpreter prints as it exits


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether memory was exhausted, that of the machine or of a GPU; torch says so in words."""
    if isinstance(error, RuntimeError):
        return any(phrase in str(error) for phrase in ("can't allocate memory", "out of memory"))
    return isinstance(error, MemoryError)


@contextmanager
def errors_name(path: os.PathLike[str] | str) -> Iterator[None]:
    """Let a library's error within the block name the file that it reads or writes.

    :raises UserError: in the place of such an error; memory that ends, and errors that name their file, stay
    """
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        if is_out_of_memory(error) or (isinstance(error, OSError) and error.filename is not None):
            raise
        raise UserError(f"{path}: {one_line(describe(error))}") from error


def unknown_arguments(arguments: Sequence[str], options: Iterable[str]) -> str:
    """Return the message about words that a command does not know, with the option that the first one resembles."""
    similar = did_you_mean(arguments[0].partition("=")[0], options, likeness=0.75)
    return f"unrecognized arguments: {' '.join(arguments)}{similar}"


def did_you_mean(name: str, candidates: Iterable[str], likeness: float = 0.6) -> str:
    """Return the known name that begins with an unknown one, or resembles it, as a question; "" if none does."""
    names = list(candidates)
    longer = sorted((candidate for candidate in names if name.strip("-") and candidate.startswith(name)), key=len)
    similar = longer or get_close_matches(name, names, n=1, cutoff=likeness)
    return f" (did you mean {similar[0]}?)" if similar else ""
