"""What can go wrong, by what one does next. The text says what failed, where, why and what to do."""

__all__ = [
    "Error",
    "ConfigError",
    "StateMismatchError",
    "DataError",
    "ReadError",
    "StalledError",
    "BatchesHeldError",
    "ForkError",
    "InternalError",
]


class Error(Exception):
    """Any error of feedline."""


class ConfigError(Error, ValueError):
    """An argument cannot be used: change it."""


class StateMismatchError(Error, ValueError):
    """A saved state belongs to another dataset or other settings; the text lists every field that differs."""


class DataError(Error):
    """The dataset is missing, empty, changed or damaged: build or restore it. Damaged samples are never handed out."""


class ReadError(Error, OSError):
    """The dataset cannot be reached."""


class StalledError(Error, TimeoutError):
    """No batch came for `stall_timeout_s`, or the dataset did not open in that time; the text says what was waited for."""


class BatchesHeldError(Error, RuntimeError):
    """Every batch is held by the caller."""


class ForkError(Error, RuntimeError):
    """An iteration is used in another process than the one that started it."""


class InternalError(Error, RuntimeError):
    """A bug in feedline."""
