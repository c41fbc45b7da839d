"""Errors that a user can put right."""


class UserError(Exception):
    """Something in the user's files or options is wrong.

    The message names the file or option and fits on one line; the command line prints it without a traceback.
    """
