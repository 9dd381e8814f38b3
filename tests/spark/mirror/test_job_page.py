"""The page of a job: its data, and its answers over HTTP; no Spark is needed."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from dispatcher.model.errors import BinlogError, ErrorKind, UserError
from dispatcher.web.assets import SHARED
from spark_sink.metrics_server import serve_metrics
from spark_sink.mirror import page as page_package
from spark_sink.mirror.copy.progress import CopyProgress
from spark_sink.mirror.metrics import MirrorCollector
from spark_sink.mirror.page.job_page import JobPage
from spark_sink.mirror.page.job_status import PROBLEMS_MAX, SHOWN_MAX, JobStatus, ShownTables
from spark_sink.mirror.rules.proofs import Difference, Proof
from spark_sink.mirror.rules.queues import WaitingTable, WaitReason
from spark_sink.mirror.rules.states import Creating, Dropped, Failing, LeftOut, Live, Stopped
from spark_sink.mirror.rules.table_record import TableRecord
from spark_sink.mirror.runtime.consumer import ConsumerSnapshot
from spark_sink.mirror.runtime.progress import ConsumerProgress, ProvedTables, TableSteps
from spark_sink.mirror.values.settings import MirrorSettings
from spark_sink.mirror.values.step_clock import StepPhase
from spark_sink.source.listener import BinlogListener
from spark_sink.source.options import SourceOptions
from tests.support.hostile_text import HOSTILE, SHOWN
from tests.support.stream_reports import progress_report, query_reported

REASON = "row image incomplete; to have the table copied again: python -m spark_sink resolve shop.bad --as recopy"
SINCE = datetime(2026, 11, 22)  # noqa: DTZ001 - the control table has no time zone


LIVE = Live()


def table(name: str, state: Any = LIVE, **values: Any) -> TableRecord:
    return TableRecord(f"id-{name}", "shop", "shop", name, state=state, at=SINCE, **values)


RECORDS = (
    table("fine"),
    table("left", LeftOut(3), reason="left out"),
    table("asked", Creating()),
    table("gone", Dropped()),
    table("part", Live(complete=False), reason="older rows are missing; copy it"),
    table("failing", Live(failing=Failing(3)), reason="tried again: the disk is full"),
    table("unlike"),
    table("bad", Stopped(7, Live()), reason=REASON),
)
PROOFS = {
    "id-unlike": Proof("id-unlike", "shop", difference=Difference(1.0, 2, evidence="/e/1.json"), repaired=3),
    "id-fine": Proof("id-fine", "shop", proved=time.time() - 60, proved_rows=9),
}  # fmt: skip
COPYING = CopyProgress("shop.asked", 500, 1000, 1 << 20, 4, 10.0, 10.0)


@dataclass
class ShopState:
    """A consumer as the applier's thread leaves it for others."""

    records: Sequence[TableRecord] = RECORDS
    name: str = "shop"
    failure: BinlogError | None = None
    snapshot: ConsumerSnapshot = field(init=False)

    def __post_init__(self) -> None:
        waiting = (WaitingTable(("shop", "fine"), 4, WaitReason.INTERVAL),)
        self.snapshot = ConsumerSnapshot(
            records=tuple(self.records), waiting_tables=waiting, proofs=PROOFS, failing=1
        )

    def progress(self) -> ConsumerProgress:
        steps = TableSteps(2, 30, dict.fromkeys(StepPhase, 0.5))
        return ConsumerProgress(
            "shop", rows=30, steps=2, waiting=4, stepped={"shop.fine": steps}, copies=(COPYING,),
            failed=self.failure is not None, repaired_rows=3, proved=ProvedTables({}, 1, 2),
        )  # fmt: skip


def job_status(*states: ShopState) -> JobStatus:
    listener = BinlogListener()
    query_reported(listener, progress_report(name="shop"))
    head = {"target": "/data/mirror", "shown_max": SHOWN_MAX, "daemons": ["http://127.0.0.1:8085"]}

    def complete(text: str) -> str:
        return text.replace("spark_sink resolve", "spark_sink resolve --config mirror.yaml")

    return JobStatus(head, lambda: states, lambda: [("shop", True)], listener.totals, complete)


def names(answer: dict[str, Any]) -> list[str]:
    return [row["table"].removeprefix("shop.") for row in answer["tables"]]


def test_tables_that_need_a_person_come_first_with_what_to_do() -> None:
    answer = job_status(ShopState()).answer(ShownTables())
    assert names(answer) == ["bad", "unlike", "failing", "part", "asked", "fine", "left"]
    assert answer["states"] == {
        "creating": 1, "copying": 0, "complete": 3, "partial": 2, "stopped": 1, "dropped": 1,
    }  # fmt: skip
    stopped, differs, failing, partial = answer["problems"]
    assert (stopped["title"], stopped["what"], stopped["tone"]) == (
        "stopped",
        "row image incomplete",
        "bad",
    )
    assert stopped["remedy"] == (
        "to have the table copied again: python -m spark_sink resolve --config mirror.yaml shop.bad --as recopy"
    )  # fmt: skip
    assert differs["what"] == "2 rows differ; the rows of both sides: /e/1.json"
    assert "spark_sink repair shop.unlike" in differs["remedy"]
    assert failing["what"] == "tried again: the disk is full" and failing["tone"] == "warn"
    assert partial["remedy"] == "copy it"
    rows = {row["table"]: row for row in answer["tables"]}
    fine = rows["shop.fine"]
    assert (fine["rows"], fine["step_seconds"], fine["waiting_entries"]) == (30, 1.0, 4)
    assert fine["waits"] == "they wait for seconds_between_steps" and fine["proved_rows"] == 9
    assert rows["shop.unlike"]["repaired_rows"] == 3
    (consumer,) = answer["consumers"]
    assert (consumer["log"], consumer["apply"], consumer["lag_bytes"]) == (True, True, 100)
    assert consumer["copies"][0]["rest_s"] == 10.0
    assert json.loads(json.dumps(answer, default=str))["daemons"] == ["http://127.0.0.1:8085"]


def test_a_person_chooses_tables_by_state_and_name() -> None:
    status = job_status(ShopState())
    assert names(status.answer(ShownTables("problems"))) == ["bad", "unlike", "failing", "part"]
    assert names(status.answer(ShownTables("dropped"))) == ["gone"]
    assert names(status.answer(ShownTables("", "fai"))) == ["failing"]
    assert names(status.answer(ShownTables("", "", 5))) == ["fine", "left"]
    beyond = status.answer(ShownTables("", "", 500))
    assert (names(beyond), beyond["matching"], beyond["first"]) == ([], 7, 6)
    assert ShownTables.of_query("state=stopped&find=A%20b&first=7") == ShownTables(
        "stopped", "a b", 7
    )
    assert ShownTables.of_query("first=-1&find=&x=%ff&first=²") == ShownTables()


def test_a_consumer_that_has_failed_and_one_of_another_job() -> None:
    failure = BinlogError(
        ErrorKind.POSITION_PURGED, "purged", remedy="python -m spark_sink resolve"
    )
    status = job_status(ShopState((), failure=failure))
    status.log_stages = lambda: [("other", False)]
    shop, other = status.answer(ShownTables())["consumers"]
    assert (shop["log"], shop["apply"]) == (None, False) and "--config mirror.yaml" in shop[
        "failure"
    ]
    assert (other["consumer"], other["log"], other["apply"]) == ("other", False, None)


def test_ten_thousand_tables_have_a_short_answer_of_safe_text() -> None:
    records = [
        replace(RECORDS[-1], table_id=f"id{n}", table=f"{HOSTILE}{n}", reason=HOSTILE)
        for n in range(10_000)
    ]
    answer = job_status(ShopState(records)).answer(ShownTables())
    assert len(answer["tables"]) == SHOWN_MAX and len(answer["problems"]) == PROBLEMS_MAX
    assert answer["matching"] == answer["all_problems"] == answer["states"]["stopped"] == 10_000
    assert answer["tables"][0]["table"] == f"shop.{SHOWN}0"
    assert len(json.dumps(answer, default=str)) < 200_000


def asked(port: int, path: str, host: str = "", method: str = "GET") -> tuple[int, Any, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request(method, path, headers={"Host": host} if host else {})
        answer = connection.getresponse()
        return answer.status, answer.headers, answer.read()
    finally:
        connection.close()


def test_the_page_is_served_beside_the_metrics() -> None:
    folder = Path(page_package.__file__).with_name("static")
    progress = ShopState().progress()
    server = serve_metrics(
        "127.0.0.1", 0, MirrorCollector(lambda: [progress]), page=JobPage(job_status(ShopState()))
    )  # fmt: skip
    try:
        status, headers, body = asked(server.server_port, "/")
        assert status == 200 and body == (folder / "mirror.html").read_bytes()
        assert headers["Content-Security-Policy"].startswith(
            "default-src 'none'; script-src 'self'"
        )
        for name in (*SHARED, "mirror.css", "mirror.mjs"):
            assert asked(server.server_port, f"/static/{name}")[0] == 200
        assert b"binlog_mirror_applied_rows_total" in asked(server.server_port, "/metrics")[2]
        answer = json.loads(asked(server.server_port, "/status?state=stopped")[2])
        assert names(answer) == ["bad"] and answer["target"] == "/data/mirror"
        assert asked(server.server_port, "/", "localhost:1")[0] == 200
        assert asked(server.server_port, "/status", "evil.example")[0] == 403
        assert asked(server.server_port, "/", method="POST")[0] == 405
        assert asked(server.server_port, "/", method="HEAD")[::2] == (200, b"")
        for path in ("/static/mirror.html", "/static/../job_page.py", "/status/", "/favicon.ico"):
            assert asked(server.server_port, path)[0] == 404
    finally:
        server.shutdown()
        server.server_close()
    for file in folder.iterdir():
        assert "//" not in file.read_text(encoding="utf-8").replace("// ", ""), (
            "an address of another server"
        )


@pytest.mark.parametrize(
    ("given", "serves", "agent"),
    [
        ({"metrics": "127.0.0.1:9464"}, True, "binlog-mirror (page :9464)"),
        ({"metrics": "[::1]:0"}, True, "binlog-mirror"),
        ({"metrics": "0.0.0.0:9464"}, False, "binlog-mirror"),
        ({"metrics": "0.0.0.0:9464", "page": True}, True, "binlog-mirror (page :9464)"),
        ({"metrics": "127.0.0.1:9464", "page": False}, False, "binlog-mirror"),
        ({}, False, "binlog-mirror"),
    ],
)
def test_the_page_is_served_at_loopback_addresses_unless_the_settings_say_otherwise(
    given: dict[str, Any], serves: bool, agent: str
) -> None:
    needed = {"url": "http://h:1", "consumers": ["c"], "target": "/t"}
    settings = MirrorSettings.model_validate(needed | given)
    assert settings.serves_page is serves
    assert SourceOptions.parse(settings.source_options("c")).address.user_agent == agent


@pytest.mark.parametrize("text", ["", " x", "é", "a\nb", "x" * 201])
def test_the_name_of_a_reader_is_short_printable_text(text: str) -> None:
    given = {"url": "http://h:1", "consumer": "c"}
    assert (
        SourceOptions.parse(given | {"userAgent": "x (page :1)"}).address.user_agent
        == "x (page :1)"
    )
    with pytest.raises(UserError, match="userAgent"):
        SourceOptions.parse(given | {"userAgent": text})
