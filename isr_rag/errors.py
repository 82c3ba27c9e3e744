"""Every error this package raises on purpose: what was wrong, and what to do about it."""

from __future__ import annotations

import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager


class ISRError(Exception):
    """Base of every error raised on purpose by isr_rag; `position` is that of the item of a batch it is about."""

    position: int | None = None


class InvalidInputError(ISRError, ValueError):
    """The evidence, question, claim, answer or item cannot be decided about as given."""


class InvalidTypeError(ISRError, TypeError):
    """An argument has the wrong type."""


class ConfigurationError(ISRError, ValueError):
    """A setting of the gate, a scorer or a reference is out of range or does not fit the others."""


class NoReferenceError(ConfigurationError):
    """The gate has no reference to compare with: without one there is no gate."""


class PromptTooLongError(InvalidInputError):
    """The assembled prompt does not fit the model's context window.

    Attributes:
        without: the chunks (places in the prompt) without which it would fit; empty where the question is too long.
    """

    def __init__(self, message: str, without: Sequence[int] = ()) -> None:
        super().__init__(message)
        self.without = tuple(without)


class LabelError(ConfigurationError):
    """The label strings cannot be told apart, or are not single tokens, for this tokenizer."""


class ScorerError(ISRError, RuntimeError):
    """The scorer failed, or returned something that is not a probability distribution over the labels."""


class QueueFullError(ScorerError):
    """As many callers wait for one model as its queue holds; nothing was scored, and it may be tried again later."""


class MemoryBudgetError(ScorerError):
    """A prompt would take more memory than a forward pass may."""


class ReferenceFailedError(ISRError, RuntimeError):
    """A reference raised, or returned something that is not a probability."""


class ServerError(ScorerError):
    """An inference server failed for good: unreachable, refusing, or out of retries.

    Attributes:
        status: the HTTP status, where there was a reply.
    """

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


class ServerReplyError(ServerError):
    """A server's reply is not a first-token distribution from which the labels can be read."""


class ServerDeadlineError(ServerError):
    """A request, or the orderings of one decision, took longer than the deadline."""


class RetrieverFailedError(ISRError, RuntimeError):
    """The retriever of an acquisition loop raised, or returned something that is not a list of chunks."""


class CalibrationError(ISRError, ValueError):
    """Labelled data or settings from which no meaningful bound can be fitted; the message says what to do."""


class CalibrationMismatchError(CalibrationError):
    """A calibration belongs to another scorer, predicate, ordering family, m or focus than the gate's."""


class CalibrationCorruptError(CalibrationError):
    """A calibration file is damaged, was altered after it was fitted, or has an unknown schema version."""


class CalibrationWarning(UserWarning):
    """A calibration that is weaker than it looks (few labels of a class, a verifier not shown better than chance)."""


class ModelNotFoundError(ISRError, FileNotFoundError, ValueError):
    """A model, adapter or calibration file is missing; the message names the command that installs it."""


class ModelCorruptError(ISRError, ValueError):
    """A model or adapter file is damaged, or does not belong to the model it was asked for."""


class OutputError(ISRError, ValueError):
    """An output cannot be written as asked: it is there already, another process writes it, or it is the input."""


class MissingDependencyError(ISRError, ImportError):
    """A dependency is not installed, or cannot be imported; the message names what installs it."""

    def __init__(
        self, feature: str, package: str, extra: str | None, distribution: str = "isr-rag", failed: str = ""
    ) -> None:
        super().__init__(
            f"{feature} needs the package {package!r}, which {failed or 'is not installed'}. "
            f"Install it with: {install_command(extra, distribution)}"
        )
        self._given = feature, package, extra, distribution, failed

    def __reduce__(self) -> tuple[type[MissingDependencyError], tuple[str, str, str | None, str, str]]:
        return type(self), self._given


@contextmanager
def needed_for(feature: str, extra: str) -> Generator[None, None, None]:
    """Around imports: one that fails is a MissingDependencyError that names the extra."""
    try:
        yield
    except MissingDependencyError:
        raise
    except ImportError as error:
        package = (error.name or str(error)).partition(".")[0]
        there = not isinstance(error, ModuleNotFoundError) or sys.modules.get(package) is not None
        failed = f"is there but fails to import ({error})" if there else ""
        raise MissingDependencyError(feature, package, extra, failed=failed) from error


def install_command(extra: str | None, distribution: str = "isr-rag") -> str:
    """The command that installs an extra, or with None the distribution, from a checkout.

    The name alone is never advised: as long as nothing is released, anybody could have registered it on an index.
    """
    return f"pip install '.{'' if extra is None else f'[{extra}]'}', in a checkout of {distribution}"
