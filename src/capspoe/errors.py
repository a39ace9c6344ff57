"""What can go wrong, each with a message written for the person who reads it."""


class CapspoeError(Exception):
    """A failure with one clear line to show; the command line prints it and exits with 1."""


class InputError(CapspoeError, ValueError):
    """An argument that cannot be used: a wrong shape, type, value or name."""


class DataError(CapspoeError):
    """Images or labels that are missing, or not what they should be."""


class RunError(CapspoeError):
    """A run folder that is missing, damaged, busy or made by another version."""


def damaged(what: str) -> RunError:
    return RunError(f"the run is damaged: {what}")


class DivergedError(CapspoeError):
    """Training that left the range of sensible numbers; the last good checkpoint stays."""


class PeerError(CapspoeError):
    """A process that stops because another one of the same run did."""


class CapspoeWarning(UserWarning):
    """Something that a person should know although the work goes on; the command line prints it as one line."""


class DamageWarning(CapspoeWarning):
    """A damaged file of a run; the message says what replaces it."""
