"""The status page of a real daemon in a real browser."""

from __future__ import annotations

import ast
import os
import re
import shlex
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, Request, expect

from spark_sink.source.options import SourceOptions
from tests.daemon.harness import DEADLINE_S, PASSWORD, Api, Daemon, Json, Reader, until
from tests.daemon.test_readers import leave_poll
from tests.servers import Server
from tests.support.browser import chromium

# The same time limit as for other conditions, because daemon and browser need several seconds on a busy machine.
expect.set_options(timeout=DEADLINE_S * 1000)

TOKEN, SCOPED = "token-of-an-operator", "token-of-the-shop-team"
DATABASE = "status_page"
# Finds the elements of which the page shows only the beginning.
CUT = """[...document.querySelectorAll("main *")].filter(one => one.childElementCount === 0 || one.matches("p, ol"))
    .filter(one => getComputedStyle(one).overflow !== "visible"
        && (one.scrollWidth > one.clientWidth + 1 || one.scrollHeight > one.clientHeight + 1))
    .map(one => one.textContent)"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as running:
        yield running


@pytest.fixture(scope="module")
def daemon(mysql97: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """A daemon with three consumers: `c` has a reader, `lost` cannot begin, and the server of `down` is not running."""
    mysql97.execute(f"CREATE DATABASE {DATABASE}", f"CREATE TABLE {DATABASE}.t (id INT)")
    mysql97.add_user("page", PASSWORD)
    shared = {
        "mysql": f"page@{mysql97.host}:{mysql97.port}",
        "password": PASSWORD,
        "databases": [DATABASE],
    }
    consumers = {
        "c": shared,
        "lost": {**shared, "start": {"file": "binlog.999999", "offset": 4}},
        "down": {**shared, "mysql": "page@127.0.0.1:1"},
    }
    tokens = [
        {"token": TOKEN, "consumers": "all"},
        {"token": SCOPED, "consumers": ["c"], "scopes": ["read"]},
    ]
    folder = tmp_path_factory.mktemp("page")
    running = Daemon(folder, {"consumers": consumers, "api": {"tokens": tokens}})
    running.token = TOKEN
    running.start()
    yield running
    running.stop()
    running.close()
    mysql97.execute(f"DROP DATABASE {DATABASE}", "DROP USER 'page'@'%'")


@dataclass
class Visit:
    """A page, with all requests that it has sent and all errors that it has reported."""

    page: Page
    origin: str
    requests: list[Request] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)

    def request(self, request: Request) -> None:
        self.requests.append(request)

    def text(self, selector: str) -> str:
        return self.page.locator(selector).inner_text()

    def log_in(self, token: str) -> None:
        self.page.goto(self.origin)
        self.page.fill("#token", token)
        self.page.click("button")


@contextmanager
def visit(browser: Browser, daemon: Daemon, **options: Any) -> Iterator[Visit]:
    """Open the page in a browser without cookies. Asserts that the page sent no request to another server."""
    options.setdefault("viewport", {"width": 1280, "height": 900})
    page = browser.new_page(**options)
    page.set_default_timeout(20_000)
    visit = Visit(page, f"http://127.0.0.1:{daemon.port}/")
    page.on("request", visit.request)
    page.on("pageerror", lambda error: visit.complaints.append(str(error)))
    page.on(
        "console", lambda one: visit.complaints.append(one.text) if one.type == "error" else None
    )
    try:
        yield visit
        assert visit.complaints == []
        foreign = [
            request.url for request in visit.requests if not request.url.startswith(visit.origin)
        ]
        assert foreign == [] and len(visit.requests) > 3
        # The token is sent only in the body of the form, never in an address.
        assert not [request.url for request in visit.requests if "token-of" in request.url]
    finally:
        page.close()


def shown(visit: Visit, consumer: str) -> Json:
    """Returns the fields of a consumer on the page, as text."""
    node = visit.page.locator(f"[data-consumer={consumer}]")
    fields: list[list[str]] = node.locator("[data-field]").evaluate_all(
        "all => all.map(one => [one.dataset.field, one.dataset.value])"
    )
    return {one[0]: one[1] for one in fields}


def told(row: Json, fields: Json) -> Json:
    """Returns the same fields from a row of /v1/binlogs. `seq` is the seq of the acknowledged position."""
    values = {**row, "seq": (row["acknowledged"] or {}).get("seq")}
    return {name: "" if values[name] is None else str(values[name]) for name in fields}


def test_a_login_by_form(browser: Browser, daemon: Daemon) -> None:
    with visit(browser, daemon) as seen:
        seen.log_in("wrong")
        expect(seen.page.get_by_role("alert")).to_contain_text("the token is not valid")
        seen.complaints.clear()  # the browser reports the status 401
        seen.page.fill("#token", TOKEN)
        seen.page.click("button")
        seen.page.wait_for_selector("[data-live=true]")
        assert seen.page.url == seen.origin
        (cookie,) = seen.page.context.cookies()
        assert cookie["httpOnly"] and cookie["sameSite"] == "Strict"
        assert TOKEN not in str(cookie) and seen.page.evaluate("document.cookie") == ""
        seen.page.get_by_text("Log out").click()
        seen.page.wait_for_selector("#token")
        seen.page.goto(seen.origin)
        seen.page.wait_for_selector("#token")
        assert seen.page.context.cookies() == []


def run_snippets(seen: Visit, daemon: Daemon) -> None:
    """Run the command for curl, and parse the options of the other programs."""
    buttons = seen.page.locator("[data-consumer=c] [data-copy]").evaluate_all(
        "all => all.map(one => [one.dataset.copy, one.title])"
    )
    programs = dict(buttons)
    assert [*programs] == ["curl", "SQL", "Python", "shell"]
    before = daemon.api.row("c")["session"]
    environment = os.environ | {"TOKEN": TOKEN}
    subprocess.run(
        ["bash", "-euc", programs["curl"]], check=True, cwd=daemon.folder, env=environment
    )
    assert daemon.api.row("c")["session"] == before
    # The reader has acknowledged all changes; then nothing follows the first line.
    assert (daemon.folder / "c.binlog").read_bytes()[:4] in (b"", b"\xfebin")
    given = dict(re.findall(r"(\w+) '([^']+)'", programs["SQL"]))
    assert SourceOptions.parse(given).address.url == daemon.url
    first, _, _ = ast.parse(programs["Python"]).body
    assert isinstance(first, ast.Assign) and ast.literal_eval(first.value) == given
    words = shlex.split(programs["shell"])
    assert words[1:4] == ["read", "c", "--no-ack"] and daemon.url in words


def test_the_page_shows_what_the_api_tells(
    browser: Browser, daemon: Daemon, mysql97: Server
) -> None:
    reader = Reader(daemon, "c").open()
    mysql97.execute(f"INSERT INTO {DATABASE}.t VALUES (1)")
    reader.read_to(mysql97)
    daemon.api.until_state("lost", "failed")
    with visit(browser, daemon) as seen:
        seen.log_in(TOKEN)
        seen.page.wait_for_selector("[data-live=true]")
        for details in seen.page.get_by_text("details").all():
            details.click()
        seen.page.wait_for_selector("dd code", timeout=20_000)

        def agrees() -> bool:
            rows = daemon.api.rows()
            fields = {name: shown(seen, name) for name in rows}
            # Without a position there is no seq.
            complete = all(len(one) >= 8 for one in fields.values()) and "seq" in fields["c"]
            return complete and fields == {n: told(row, fields[n]) for n, row in rows.items()}

        until(agrees, "page and API agree")
        rows = daemon.api.rows()
        assert seen.text("[data-tile=consumers]") == str(len(rows))
        connections = {row["binlog_client_name"] for row in rows.values()}
        assert seen.page.locator("[data-connection]").count() == len(connections)
        for name, row in rows.items():
            inside = f"[data-connection='{row['binlog_client_name']}'] [data-consumer={name}]"
            assert seen.page.locator(inside).count() == 1
            if row["dispatcher_name"]:
                of = f"[data-dispatcher='{row['dispatcher_name']}'] [data-consumer={name}]"
                assert seen.page.locator(of).count() == 1
        assert seen.text("[data-consumer=c] code") == rows["c"]["acknowledged"]["gtid"]

        for name in ("lost", "down"):
            problem = seen.text(f"[data-problem~={name}]")
            assert rows[name]["last_error_remedy"] in problem
            assert rows[name]["last_error"].split(";")[0] in problem
        run_snippets(seen, daemon)
        # Plots begin with the data of the last minutes, which the daemon has in memory.
        seen.page.locator("[data-consumer=c] .canvas").last.scroll_into_view_if_needed()
        expect(seen.page.locator("[data-consumer=c] canvas")).to_have_count(3)
        assert f"{seen.origin}status/consumers/c" in [request.url for request in seen.requests]
        until(lambda: daemon.api.get("/status/consumers/c")["history"]["time"], "there is a sample")

        # The page shows later changes without a reload.
        leave_poll(daemon, reader)
        gone = seen.page.locator("[data-problem~=c]")
        expect(gone).to_contain_text("the reader is gone")
        expect(gone).to_contain_text("Nothing waits for it yet.")
        expect(gone).to_have_class("problem warn")
        mysql97.execute(f"INSERT INTO {DATABASE}.t VALUES (2)")
        expect(gone).to_contain_text("wait for it.")
        expect(gone).to_have_class("problem bad")
        assert daemon.api.row("c")["reader"] == "gone"
        expect(seen.page.locator("[data-kind=failed]")).to_contain_text("lost")
        reader.read_to(mysql97)
        expect(seen.page.locator("[data-problem~=c]")).to_have_count(0)


def test_a_token_for_one_consumer_sees_that_one(browser: Browser, daemon: Daemon) -> None:
    with visit(browser, daemon) as seen:
        seen.log_in(SCOPED)
        seen.page.wait_for_selector("[data-live=true]")
        names = seen.page.locator("[data-consumer]").evaluate_all(
            "all => all.map(one => one.dataset.consumer)"
        )
        assert names == [*Api(daemon.port, SCOPED).rows()] == ["c"]
        assert "lost" not in seen.text("body") and "down" not in seen.text("body")


@contextmanager
def replaced_store(daemon: Daemon) -> Iterator[None]:
    """Replace the state store by another file during the block."""
    away, other = daemon.state.with_name("away.db"), daemon.state.with_name("other.db")
    other.write_bytes(daemon.state.read_bytes())
    away.hardlink_to(daemon.state)
    other.replace(daemon.state)
    yield
    away.replace(daemon.state)


def test_a_state_store_that_cannot_be_written_is_a_problem_of_all(
    browser: Browser, daemon: Daemon
) -> None:
    with visit(browser, daemon) as seen:
        seen.log_in(TOKEN)
        seen.page.wait_for_selector("[data-live=true]")
        with replaced_store(daemon):
            problem = seen.page.locator("[data-problem]", has_text="positions are not stored")
            expect(problem).to_have_attribute("data-problem", "c lost down")
            expect(problem).to_contain_text("the file was replaced by another one")
            expect(problem.locator(".remedy")).to_contain_text("restart the daemon")
            expect(seen.page.locator(".tiles")).to_contain_text("positions not stored")
            happened = seen.page.locator(
                "[data-kind=failed]", has_text="state store was deleted or replaced"
            )
            expect(happened).to_contain_text("the file was replaced by another one")
            seen.page.set_viewport_size({"width": 390, "height": 800})
            assert seen.page.evaluate(CUT) == []
        expect(problem).to_have_count(0)


def test_it_fits_every_screen(browser: Browser, daemon: Daemon) -> None:
    brightness = "getComputedStyle(document.body).backgroundColor.match(/\\d+/g).reduce((a, b) => +a + +b, 0)"
    with visit(browser, daemon, color_scheme="light") as seen:
        seen.log_in(TOKEN)
        seen.page.wait_for_selector("[data-live=true]")
        assert seen.page.evaluate(brightness) > 600
        seen.page.emulate_media(color_scheme="dark")
        assert seen.page.evaluate(brightness) < 150
        for width in (1280, 900, 390):
            seen.page.set_viewport_size({"width": width, "height": 800})
            seen.page.locator("[data-consumer=c] .canvas").last.scroll_into_view_if_needed()
            seen.page.wait_for_selector("[data-consumer=c] canvas")
            assert seen.page.evaluate("document.documentElement.scrollWidth") <= width
        assert seen.page.evaluate(CUT) == []


def test_a_daemon_that_restarts_asks_for_the_token_again(browser: Browser, daemon: Daemon) -> None:
    with visit(browser, daemon) as seen:
        seen.log_in(TOKEN)
        seen.page.wait_for_selector("[data-live=true]")
        daemon.stop()
        expect(seen.page.get_by_role("status")).to_have_text("the daemon does not answer")
        assert seen.page.locator("[data-consumer]").count() == 3, "the last picture stays"
        daemon.start()
        seen.page.wait_for_selector("#token")
        seen.complaints.clear()  # the browser reports the refused connections
