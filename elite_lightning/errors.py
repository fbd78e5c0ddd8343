"""The error that is the user's to fix: the command line prints its message as one line and no traceback."""


class UsageError(ValueError):
    """A setting, file or run folder that cannot be used as it is; the message names it and the way out."""
