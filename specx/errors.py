"""Every error a user can meet: one sentence that says what is wrong and what to do.

Each class carries the exit code of the process. The codes are documented in ``docs/cli.md``.
"""


class SpecxError(Exception):
    """Base of all errors that are shown to the user as one sentence."""

    exit_code = 1


class UsageError(SpecxError):
    """A wrong option, argument or combination of them."""

    exit_code = 2


class ProfileError(UsageError):
    """A profile that is unknown or invalid; the message lists every problem with its line."""


class DocumentError(SpecxError):
    """An input that cannot be read, or that is refused."""

    exit_code = 3


class ModelError(SpecxError):
    """A model that cannot be loaded, or a target and a draft that do not fit each other."""

    exit_code = 4


class OutOfMemoryError(SpecxError):
    """The work at hand needs more memory than this machine has."""

    exit_code = 5


class DivergenceError(SpecxError):
    """``--check-lossless`` found a token that plain decoding would not have written."""

    exit_code = 6


class BatchError(SpecxError):
    """Some documents of several failed; the others are done."""

    exit_code = 7
