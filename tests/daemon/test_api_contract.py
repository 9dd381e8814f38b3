"""The daemon's answers agree with its OpenAPI document: schemathesis calls a running daemon, and checks each answer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import hypothesis
import pytest
import schemathesis
from hypothesis import HealthCheck
from hypothesis.errors import FlakyStrategyDefinition
from schemathesis import Case, CheckContext, Response
from schemathesis.specs.openapi import checks

from tests.daemon.harness import PASSWORD, Daemon, load
from tests.servers import Server

TOKEN = "token-of-all-the-consumers"
CONSUMERS = ("one", "two")
SCOPES = ["read", "acknowledge", "administer", "metrics", "declare"]
EXAMPLES = 25  # how often each call is made
FLOWS = 25  # sequences of calls that follow the document's links: session, poll, binlog, ack, ...
WAIT_MAX_MS = 20

# Each of these calls must have succeeded at least once in a flow; otherwise the flows test too little.
REACHED = {"session", "poll", "binlog", "slices", "ack"}


def answers_what_is_declared(context: CheckContext, response: Response, case: Case[Any]) -> None:
    """Fails if the document does not declare status, content type, headers or body. The only allowed 5xx status is 503
    with Retry-After."""
    if response.status_code >= 500:
        assert response.status_code == 503 and response.headers["retry-after"], response.text
    for check in _CHECKS:
        check(context, response, case)


_CHECKS = (
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_headers_conformance,
    checks.response_schema_conformance,
)


@pytest.fixture(scope="module")
def daemon(mysql97: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """A daemon with two consumers of a database. Rows are written into the database during all tests."""
    number = id(mysql97) % 10**6
    database, user = f"contract_{number}", f"contract{number}"
    mysql97.execute(f"CREATE DATABASE {database}")
    mysql97.add_user(user, PASSWORD)
    consumer = {
        "mysql": f"{user}@{mysql97.host}:{mysql97.port}",
        "password": PASSWORD,
        "databases": [database],
    }
    token = {"token": TOKEN, "name": "all", "consumers": "all", "sources": "all", "scopes": SCOPES}
    settings = {
        "consumers": dict.fromkeys(CONSUMERS, consumer),
        # The shortest name that hypothesis makes is declared.
        "sources": {"any": {**consumer, "databases": ["*"], "names": ["0*"]}},
        "api": {"tokens": [token]},
    }
    running = Daemon(tmp_path_factory.mktemp("daemon"), settings)
    running.token = TOKEN
    running.start()
    for name in CONSUMERS:
        running.api.until_state(name, "streaming")
    with load(mysql97, database):
        yield running
    running.stop()
    running.close()
    mysql97.execute(f"DROP DATABASE {database}", f"DROP USER {user}")


@pytest.fixture
def schema(daemon: Daemon) -> Any:
    """The daemon's OpenAPI document, changed so that most calls are for existing consumers and no poll waits long."""
    read = schemathesis.openapi.from_dict(daemon.api.get("/openapi.json"))
    read.config.update(base_url=f"http://127.0.0.1:{daemon.port}")

    @read.hook
    def map_path_parameters(_: Any, path_parameters: Any) -> Any:
        if path_parameters and "consumer" in path_parameters:
            given = str(path_parameters["consumer"])
            if len(given) % 4:
                path_parameters["consumer"] = CONSUMERS[len(given) % 2]
        return path_parameters

    @read.hook
    def map_body(_: Any, body: Any) -> Any:
        if isinstance(body, dict) and isinstance(body.get("wait_ms"), int):
            body["wait_ms"] = min(body["wait_ms"], WAIT_MAX_MS)
        return body

    return read


def settings(examples: int, **more: Any) -> hypothesis.settings:
    return hypothesis.settings(
        max_examples=examples,
        deadline=None,
        database=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
        **more,
    )


HEADERS = {"Authorization": f"Bearer {TOKEN}"}


def test_each_call_answers_what_is_declared(schema: Any) -> None:
    operations = [result.ok() for result in schema.get_all_operations()]
    assert len(operations) == 20
    for operation in operations:

        @settings(EXAMPLES)
        @hypothesis.given(case=operation.as_strategy())
        def check(case: Case[Any]) -> None:
            case.call_and_validate(
                headers=HEADERS,
                checks=[answers_what_is_declared, checks.negative_data_rejection],
            )

        check()


def test_each_call_refuses_a_request_without_a_token_as_declared(schema: Any) -> None:
    for result in schema.get_all_operations():

        @settings(3)
        @hypothesis.given(case=result.ok().as_strategy())
        def check(case: Case[Any]) -> None:
            answer = case.call_and_validate(checks=[answers_what_is_declared])
            needs_none = case.path == "/livez" or (case.path == "/readyz" and not case.query)
            assert answer.status_code == (200 if needs_none else 401)

        check()


def test_readers_that_follow_the_links_are_answered_what_is_declared(schema: Any) -> None:
    reached: Counter[str] = Counter()

    class Reader(schema.as_state_machine()):  # type: ignore[misc]
        def get_call_kwargs(self, _: Case[Any]) -> dict[str, Any]:
            return {"headers": HEADERS}

        def validate_response(self, response: Response, case: Case[Any], **_: Any) -> None:
            case.validate_response(response, checks=[answers_what_is_declared])
            if response.status_code == 200:
                reached[case.operation.path.rpartition("/")[2]] += 1

    # The answer of a poll also depends on time, and Hypothesis stops if equal calls get different answers.
    for _ in range(5):
        with suppress(FlakyStrategyDefinition):
            Reader.run(settings=settings(FLOWS, stateful_step_count=10))
            break
    else:
        pytest.fail("no run got to its end")
    assert reached.keys() >= REACHED, reached
