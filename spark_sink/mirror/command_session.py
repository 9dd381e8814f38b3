"""The Spark session of a command that a person runs, and its end by Ctrl-C or SIGTERM."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import TYPE_CHECKING

from dispatcher.terminal.output import say_progress
from spark_sink.long_work import long_work
from spark_sink.mirror.session import spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark_sink.mirror.values.settings import MirrorSettings

_JVM_END_S = 10.0
_ENDING = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def command_session(settings: MirrorSettings) -> Iterator[SparkSession]:
    """Starts Spark, shows this on stderr, and yields the session. At the end of the block, Spark has stopped.

    SIGINT and SIGTERM end the JVM and the block. Then SIGINT raises KeyboardInterrupt, and SIGTERM SystemExit with the
    code that a shell has for this signal. During the start of Spark they take effect at its end, because a JVM whose
    start is interrupted does not end.
    """
    signals = _Signals()
    before = {number: signal.signal(number, signals.receive) for number in _ENDING}
    try:
        with long_work("starting Spark"):
            spark = spark_session(settings)
        try:
            signals.may_interrupt(_Jvm(spark))
            yield spark
        finally:
            if signals.received is None:
                spark.stop()
    except BaseException:
        signals.end()  # calls of a JVM that ends fail with various errors, in place of the first exception
        raise
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class _Jvm:
    """The process of Spark's JVM; spark-submit runs Python in a process of the JVM, so it ends the JVM itself."""

    def __init__(self, spark: SparkSession) -> None:
        gateway = spark.sparkContext._gateway  # noqa: SLF001 - nothing else knows the process
        self._process: subprocess.Popen[bytes] | None = getattr(gateway, "proc", None)

    def end(self) -> None:
        """End the JVM. It ends by itself when its standard input ends; `SparkSession.stop` could fail, because a
        signal may have interrupted another call of the JVM in this thread."""
        if self._process is None:
            return
        if self._process.stdin is not None:
            with suppress(OSError):
                self._process.stdin.close()
        try:
            self._process.wait(_JVM_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class _Signals:
    """The first signal that the process has received. `received`: its number."""

    def __init__(self) -> None:
        self.received: int | None = None
        self._jvm: _Jvm | None = None

    def receive(self, number: int, _frame: FrameType | None) -> None:
        if self.received is not None:
            return  # the command ends already
        self.received = number
        if self._jvm is None:
            say_progress("the command ends as soon as Spark has started")
        else:
            self._interrupt(self._jvm)

    def may_interrupt(self, jvm: _Jvm) -> None:
        """From now on, let a signal end this JVM and raise SystemExit; do so if a signal was received before."""
        self._jvm = jvm
        if self.received is not None:
            self._interrupt(jvm)

    def _interrupt(self, jvm: _Jvm) -> None:
        jvm.end()
        raise SystemExit  # py4j would log a KeyboardInterrupt with its traceback

    def end(self) -> None:
        """Raise the exception of the received signal, if there was one."""
        if self.received == signal.SIGINT:
            raise KeyboardInterrupt from None
        if self.received is not None:
            raise SystemExit(128 + self.received) from None
