"""Each log line has the documented keys of its event, and never contains a secret."""

from __future__ import annotations

import ast
import io
import json
import logging
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog

from dispatcher.telemetry import logs
from tests.support.hostile_text import HOSTILE, SHOWN, acts

SECRET = "sehr-geheim"

Configured = Callable[..., io.StringIO]


@pytest.fixture
def configured() -> Iterator[Configured]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level

    def call(
        level: str = "info", style: str = "json", secrets: tuple[str, ...] = (SECRET, "x1")
    ) -> io.StringIO:
        out = io.StringIO()
        logs.configure(level, style, secrets, stream=out)
        return out

    yield call
    structlog.reset_defaults()
    root.handlers[:] = handlers
    root.setLevel(level)


def lines(out: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in out.getvalue().splitlines()]


def test_json(configured: Configured) -> None:
    out = configured()
    log = structlog.get_logger("dispatcher")
    log.info("streaming", position="binlog.000001:4", client="repl@db1:3306", consumer="shop")
    (line,) = lines(out)
    assert list(line) == ["timestamp", "level", "event", "client", "consumer", "position"]
    assert line["level"] == "info" and line["event"] == "streaming"
    assert line["timestamp"].endswith("Z")


def test_console(configured: Configured) -> None:
    out = configured(style="console")
    structlog.get_logger().warning("not connected", client="repl@db1:3306", retry_s=2.0)
    text = out.getvalue()
    assert "not connected" in text and "client=repl@db1:3306" in text and "retry_s=2.0" in text
    assert "\x1b" not in text


def test_levels(configured: Configured) -> None:
    out = configured("warning")
    log = structlog.get_logger()
    log.info("unheard")
    log.log(logging.INFO, "unheard")
    log.log(logging.ERROR, "heard", client="c")
    assert [line["event"] for line in lines(out)] == ["heard"]


@pytest.mark.parametrize("style", ["json", "console"])
@pytest.mark.parametrize(
    "value",
    [
        SECRET,
        f"mysql://repl:{SECRET}@db1",
        {"password": SECRET, "nested": [SECRET, {SECRET: 1}]},
        (SECRET,),
        ValueError(f"access denied using {SECRET}"),
        SECRET.encode(),
    ],
)
def test_secrets_are_redacted(configured: Configured, style: str, value: Any) -> None:
    out = configured(style=style)
    structlog.get_logger().info(f"event with {SECRET}", value=value)
    assert SECRET not in out.getvalue()
    assert logs.REDACTED in out.getvalue()


def test_a_short_secret_is_redacted_only_as_a_whole_value(configured: Configured) -> None:
    out = configured()
    structlog.get_logger().info("box1", a="x1", b="box1 is fine")
    (line,) = lines(out)
    assert (line["event"], line["a"], line["b"]) == ("box1", logs.REDACTED, "box1 is fine")


def test_a_secret_within_another(configured: Configured) -> None:
    out = configured(secrets=("geheim", "geheimnis"))
    structlog.get_logger().info("geheimnis")
    assert lines(out)[0]["event"] == logs.REDACTED


def test_an_empty_secret_hides_nothing(configured: Configured) -> None:
    out = configured(secrets=("",))
    structlog.get_logger().info("event", a="")
    assert lines(out)[0]["a"] == ""


@pytest.mark.parametrize("style", ["json", "console"])
def test_secrets_in_tracebacks_are_redacted(configured: Configured, style: str) -> None:
    out = configured(style=style)
    try:
        raise RuntimeError(f"with {SECRET}")
    except RuntimeError:
        structlog.get_logger().exception("failed")
        logging.getLogger("library").exception("failed in a library")
    assert SECRET not in out.getvalue()
    assert (
        out.getvalue().count("RuntimeError: with [secret]") == 2 and "Traceback" in out.getvalue()
    )


def test_an_exception_that_is_given(configured: Configured) -> None:
    out = configured()
    structlog.get_logger().error("task failed", exc_info=ValueError(SECRET))
    assert "ValueError" in lines(out)[0]["exception"] and SECRET not in out.getvalue()


def test_libraries_log_from_warning_on(configured: Configured) -> None:
    out = configured()
    logging.getLogger("uvicorn.error").info("Started server process")
    logging.getLogger("asyncio").warning("slow %s %s", "callback", SECRET)
    (line,) = lines(out)
    assert line["event"] == f"slow callback {logs.REDACTED}" and line["level"] == "warning"


def test_lines_of_libraries_when_debugging(configured: Configured) -> None:
    out = configured("debug")
    logging.getLogger("asyncio").debug("Using selector")
    assert lines(out)[0]["event"] == "Using selector"


def test_numba_does_not_log_at_debug(configured: Configured) -> None:
    out = configured("debug")
    logging.getLogger("numba.core.ssa").debug("on stmt: $2load_global.0")
    logging.getLogger("numba.core.caching").warning("cannot write")
    assert [line["event"] for line in lines(out)] == ["cannot write"]


def test_a_second_configuration_replaces_the_first(configured: Configured) -> None:
    first, second = configured(), configured()
    structlog.get_logger().info("event")
    logging.getLogger("x").warning("event")
    assert first.getvalue() == "" and len(lines(second)) == 2


def test_logs_go_to_stderr(configured: Configured, capsys: pytest.CaptureFixture[str]) -> None:
    configured()
    logs.configure("info", "json", (), stream=sys.stderr)
    structlog.get_logger().info("event")
    captured = capsys.readouterr()
    assert captured.out == "" and json.loads(captured.err)["event"] == "event"


ROOT = Path(__file__).parents[2]
DOCUMENT = ROOT / "docs/log.md"


LEVELS = ("logging.WARNING", "logging.ERROR")
WRITING = ("log.warning", "log.error", "structlog.get_logger('dispatcher').warning")


def warnings_and_errors() -> Iterator[str]:
    """Yields the texts of all log lines of these levels in the daemon's code."""
    for path in (ROOT / "dispatcher").rglob("*.py"):
        if {"cli", "library", "inspect"} & {*path.parts}:
            continue
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(call, ast.Call):
                continue
            called = ast.unparse(call.func)
            texts = [a.value for a in call.args if isinstance(a, ast.Constant)]
            levelled = bool(texts) and ast.unparse(call.args[0]) in LEVELS
            if called.endswith(WRITING) or levelled:
                yield str(texts[0])
            elif called in ("Note", "LogEvent", "self._note"):
                levels = {"warning", "error"} & {*texts}
                yield from (str(text) for text in texts if levels and text not in levels)


def test_each_warning_and_error_is_documented() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    written = set(re.findall(r"^\| `([^`]+)` \| (?:warning|error) \|", text, re.MULTILINE))
    found = set(warnings_and_errors())
    assert len(found) > 15
    assert found - written == set()
    # The search above does not find these two events, because the call that writes them does not contain the level as a
    # constant.
    assert written - found <= {"ended", "defect"}


def _log_hostile() -> None:
    log = structlog.get_logger("dispatcher")
    log.warning("not connected", error=HOSTILE, consumers=[HOSTILE])
    logging.getLogger("library").warning("%s", HOSTILE)
    try:
        raise ValueError(HOSTILE)
    except ValueError:
        log.exception("defect")


def test_a_console_line_shows_foreign_text_in_escapes(configured: Configured) -> None:
    out = configured(style="console")
    _log_hostile()
    text = out.getvalue()
    assert acts(text) == []
    assert SHOWN in text  # the event of the library
    assert text.count(SHOWN.replace("\\", 2 * "\\")) == 2  # values, which structlog quotes
    forged = [line for line in text.split("\n") if line.startswith("2026-01-01")]
    assert forged == []


def test_a_traceback_is_indented_so_that_it_forges_no_line(configured: Configured) -> None:
    out = configured(style="console")
    _log_hostile()
    lines_of_log = [line for line in out.getvalue().splitlines() if not line.startswith("  ")]
    assert len(lines_of_log) == 3


def test_a_json_line_holds_foreign_text_exactly(configured: Configured) -> None:
    out = configured()
    _log_hostile()
    first, library, defect = lines(out)
    assert first["error"] == library["event"] == HOSTILE and first["consumers"] == [HOSTILE]
    assert HOSTILE in defect["exception"]
    assert acts(out.getvalue()) == []
