"""Classifies an exception of a step: a fault of the table's data, a conflict of writers, or a failure after which the
applier repeats the step."""

from __future__ import annotations

import re

from dispatcher.model.errors import BinlogError, ErrorKind
from spark_sink.mirror.values.policies import InvalidValue

# If another process has raised an exception that is a fault, the text of its traceback contains such a line.
_FAULT = re.compile(r"dispatcher\.model\.errors\.(?:\w*Error): ([^\n]+)")
_CONFLICT = re.compile(
    r"DELTA_CONCURRENT_|Concurrent(?:Append|DeleteRead|DeleteDelete|Transaction|Write|Modification)Exception"
)
_PY4J = "An error occurred while calling "  # the line before the line of the Java exception
_LONG = 500


def becomes_null(fault: BinlogError | None, policy: InvalidValue) -> bool:
    """True if a work that failed with this fault is repeated with NULL in place of the table's invalid values."""
    is_invalid = fault is not None and fault.kind is ErrorKind.INVALID_VALUE
    return is_invalid and policy is not InvalidValue.STOP


def fault_of(error: BaseException) -> BinlogError | None:
    """Returns the fault that ended a step, raised in this process or on an executor; None if the exception is no
    fault."""
    if isinstance(error, BinlogError):
        return error
    if (line := fault_line(error)) is not None:
        kind, what, remedy = _parts(line)
        return BinlogError(kind, what, remedy=remedy)
    return None


def fault_line(error: BaseException) -> str | None:
    """Returns the line that describes a fault of another process; None if the exception contains no such line. For
    chained exceptions, the line belongs to the exception that was raised last."""
    lines = _FAULT.findall(str(error))
    return lines[-1].strip() if lines else None


def _parts(text: str) -> tuple[ErrorKind, str, str]:
    """Splits the line of a fault, `kind: what (where); remedy`, into kind, text and remedy."""
    kinds = [kind for kind in ErrorKind if text.startswith(f"{kind.value}: ")]
    kind = kinds[0] if kinds else ErrorKind.INTERNAL
    what, _, remedy = text.removeprefix(f"{kind.value}: ").partition("; ")
    return kind, what, remedy


def is_conflict(error: BaseException) -> bool:
    """True if the step failed because another writer committed to the table at the same time. The applier repeats such
    a step after a short pause."""
    return bool(_CONFLICT.search(f"{type(error).__name__}: {error}"))


def in_one_line(error: BaseException) -> str:
    """Returns an exception in one line, without the stack trace of the JVM."""
    lines = (line.strip().removeprefix(": ") for line in str(error).splitlines())
    first = next((line for line in lines if line and not line.startswith(_PY4J)), "")
    text = f"{type(error).__name__}: {first}"
    return text if len(text) <= _LONG else f"{text[: _LONG - 3]}..."
