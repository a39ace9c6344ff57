"""Errors and warnings, each with a message written for the person who reads it."""


class CapspoeError(Exception):
    """A failure with one clear line to show; the command line prints it and exits with 1."""


class InputError(CapspoeError, ValueError):
    """An argument that cannot be used: a wrong shape, type, value or name."""


class DataError(CapspoeError):
    """Images or labels that are missing or invalid."""


class RunError(CapspoeError):
    """A run folder that is missing, damaged, busy or made by another version."""


def damaged(what: str) -> RunError:
    return RunError(f"the run is damaged: {what}")


class DivergedError(CapspoeError):
    """Training that left the range of sensible numbers; the last good checkpoint stays."""


class PeerError(CapspoeError):
    """A process that stops because another process of the same run has stopped."""


class CapspoeWarning(UserWarning):
    """Something the user should know, although the work continues; the command line prints it as one line."""


class DamageWarning(CapspoeWarning):
    """A damaged file of a run; the message says what replaces it."""
