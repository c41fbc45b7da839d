"""Errors caused by the user's input."""


class UserError(Exception):
    """A file or option of the user is wrong.

    The message names the file or option and fits on one line; commands print it without a traceback.
    """
