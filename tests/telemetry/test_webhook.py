"""The webhook: signatures, when an event is repeated or given up, what is dropped, and the remedies in the log."""

from __future__ import annotations

import base64
import json
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from dispatcher.settings.webhook import WebhookSettings
from dispatcher.telemetry.backoff import RETRY_JITTER, RETRY_MAX_S, RETRY_MIN_S, Backoff
from dispatcher.telemetry.lifecycle import LifecycleEvent
from dispatcher.telemetry.outbox import MessageKind, OutMessage
from dispatcher.telemetry.webhook import sender as sending
from dispatcher.telemetry.webhook.patience import (
    REFUSALS_MAX,
    TRIED_MAX_S,
    AttemptFault,
    Patience,
)
from dispatcher.telemetry.webhook.request import post, signed_headers
from dispatcher.telemetry.webhook.sender import WebhookSender
from tests.daemon.harness import until
from tests.servers.ports import free_port
from tests.support.certificates import make_certificate
from tests.support.webhook_receiver import WebhookReceiver, is_signed, new_secret

SECRET = new_secret("a")
PAGE = (Path(__file__).parents[2] / "docs/webhook.md").read_text(encoding="utf-8")


def settings(url: str, **more: Any) -> WebhookSettings:
    return WebhookSettings.model_validate({"url": url, "secret": SECRET, **more})


def message(body: bytes = b"{}") -> OutMessage:
    return OutMessage(MessageKind.EVENT, "id1", body)


# -- the signature ---------------------------------------------------------------------------------------------


def test_the_signature_is_that_of_the_specification() -> None:
    """The example of the specification's reference implementations."""
    key = base64.b64decode("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    headers = signed_headers(
        key, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, b'{"test": 2432232314}'
    )
    assert headers == {
        "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
        "webhook-timestamp": "1614265330",
        "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    }


def page_function() -> Callable[..., bool]:
    """The function of docs/webhook.md that verifies a signature."""
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    names: dict[str, Any] = {}
    exec(code, names)
    found: Callable[..., bool] = names["is_genuine"]
    return found


def test_the_example_of_the_documentation_verifies_signatures() -> None:
    is_genuine, now = page_function(), int(time.time())
    key = settings("https://h").signing_key
    headers = signed_headers(key, "id1", now, b"body")
    assert is_genuine(SECRET, headers, b"body")
    assert not is_genuine(SECRET, headers, b"another body")
    assert not is_genuine(new_secret("b"), headers, b"body")
    assert not is_genuine(SECRET, {**headers, "webhook-id": "id2"}, b"body")
    assert not is_genuine(SECRET, signed_headers(key, "id1", now - 1000, b"body"), b"body")


# -- one request ------------------------------------------------------------------------------------------------


def test_a_request_has_the_body_and_headers() -> None:
    receiver = WebhookReceiver()
    with receiver.running():
        assert post(settings(receiver.url), message(b'{"a":1}'), 1700000000) is None
    (attempt,) = receiver.attempts
    assert (attempt.path, attempt.raw) == ("/hook?for=test", b'{"a":1}')
    assert attempt.headers["content-type"] == "application/json"
    assert (attempt.id, attempt.headers["webhook-timestamp"]) == ("id1", "1700000000")
    assert is_signed(SECRET, attempt.headers, attempt.raw)


@pytest.mark.parametrize(
    ("status", "headers", "text"),
    [
        (500, {}, "the receiver answers 500; look at the receiver's log"),
        (401, {}, "give the receiver the secret of webhook.secret_file"),
        (404, {}, "correct the path of webhook.url"),
        (410, {}, "remove the section webhook"),
        (302, {"Location": "/other"}, "redirects are not followed"),
        (308, {"Location": "/other"}, "redirects are not followed"),
        (304, {}, "the receiver answers 304"),
    ],
)
def test_any_other_answer_is_a_fault_with_its_remedy(
    status: int, headers: dict[str, str], text: str
) -> None:
    receiver = WebhookReceiver(status=status, answer_headers=headers)
    with receiver.running():
        fault = post(settings(receiver.url), message(), 0)
    assert fault is not None and text in fault.text
    assert (fault.sent, fault.status, len(receiver.attempts)) == (True, status, 1)


def test_a_receiver_that_asks_to_wait() -> None:
    receiver = WebhookReceiver(status=503, answer_headers={"Retry-After": "7"})
    with receiver.running():
        fault = post(settings(receiver.url), message(), 0)
        assert fault is not None and fault.wait_s == 7
        receiver.answer_headers = {"Retry-After": "Wed, 21 Oct 2026 07:28:00 GMT"}
        fault = post(settings(receiver.url), message(), 0)
        assert fault is not None and fault.wait_s == 0


def test_no_receiver_and_an_unknown_one() -> None:
    fault = post(settings(f"http://127.0.0.1:{free_port()}/"), message(), 0)
    assert fault is not None and not fault.sent
    assert "refused" in fault.text and "check webhook.url, the firewall" in fault.text
    fault = post(settings("http://receiver.invalid/"), message(), 0)
    assert fault is not None and not fault.sent and "correct the host in webhook.url" in fault.text


def test_tls(tmp_path: Path) -> None:
    make_certificate(tmp_path)
    receiver = WebhookReceiver()
    url = f"https://127.0.0.1:{receiver.port}/"
    with receiver.running(tmp_path):
        fault = post(settings(url), message(), 0)
        assert fault is not None and not fault.sent
        assert "set webhook.tls.ca to the authority of this certificate" in fault.text
        trusted = settings(url, tls={"ca": tmp_path / "ca.pem"})
        assert post(trusted, message(), 0) is None
        wrong = post(settings(url, tls={"ca": tmp_path / "key.pem"}), message(), 0)
        assert wrong is not None and "cannot use webhook.tls.ca" in wrong.text
    with receiver.running():
        fault = post(trusted, message(), 0)
        assert fault is not None and "does not speak TLS" in fault.text


# -- repetition -------------------------------------------------------------------------------------------------


def test_the_waits_double_up_to_a_minute() -> None:
    backoff = Backoff()
    for expected in (0.5, 1, 2, 4, 8, 16, 32, 60, 60):
        assert abs(backoff.next_s() - expected) <= RETRY_JITTER * expected
    backoff.reset()
    assert backoff.next_s() <= RETRY_MIN_S * (1 + RETRY_JITTER) < RETRY_MAX_S


def attempts_until_given_up(fault: AttemptFault, every_s: float, attempts_max: int = 1000) -> int:
    """The number of attempts, one every `every_s` seconds, after which the event is given up; 0 if it never is."""
    patience = Patience()
    given_up = (n for n in range(attempts_max) if patience.ends(fault, n * every_s))
    return next(given_up, -1) + 1


@pytest.mark.parametrize("status", [400, 401, 403, 404, 422])
def test_an_event_that_is_refused_is_given_up_after_some_attempts(status: int) -> None:
    assert attempts_until_given_up(AttemptFault("", status=status), 1) == REFUSALS_MAX


def test_a_receiver_that_is_gone_gets_each_event_once() -> None:
    assert attempts_until_given_up(AttemptFault("", status=410), 1) == 1


@pytest.mark.parametrize("status", [0, 302, 408, 425, 429, 500, 502, 503])
def test_an_event_that_another_answer_holds_up_is_given_up_after_an_hour(status: int) -> None:
    assert attempts_until_given_up(AttemptFault("", status=status), 60) == TRIED_MAX_S / 60 + 1


def test_an_event_that_does_not_reach_the_receiver_is_never_given_up() -> None:
    assert attempts_until_given_up(AttemptFault("", sent=False), 3600) == 0


# -- the sender -------------------------------------------------------------------------------------------------


@contextmanager
def started(receiver: WebhookReceiver, **more: Any) -> Iterator[WebhookSender]:
    """A sender that waits 0.02 s at most between attempts."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dispatcher.telemetry.backoff.RETRY_MAX_S", 0.02)
        patch.setattr("dispatcher.telemetry.backoff.RETRY_MIN_S", 0.01)
        sender = WebhookSender(settings(receiver.url, **more))
        sender.start()
        try:
            yield sender
        finally:
            sender.leave()


def put(sender: WebhookSender, *kinds: Any) -> None:
    for kind in kinds:
        sender.put(LifecycleEvent(kind, 0), json.dumps({"event": kind}).encode())


def test_events_arrive_in_order_after_the_receiver_was_down_and_refused() -> None:
    receiver = WebhookReceiver(status=500)
    with started(receiver) as sender:
        put(sender, "started", "leading", "attached")
        until(lambda: not sender.counts().up, "the receiver is down")
        with receiver.running():
            until(lambda: len(receiver.attempts) >= 3, "refused")
            assert {one.body["event"] for one in receiver.attempts} == {"started"}
            receiver.status = 200
            until(lambda: len(receiver.accepted) == 3, "accepted")
            assert receiver.kinds == ["started", "leading", "attached"]
            assert len({one.id for one in receiver.attempts}) == 3
            until(lambda: sender.counts().delivered == 3, "counted")
            assert sender.counts().up


def test_a_refused_event_does_not_block_the_next_one() -> None:
    receiver = WebhookReceiver(status=422)
    with receiver.running(), started(receiver) as sender:
        put(sender, "failed")
        until(lambda: sender.counts().dropped["given_up"] == 1, "given up")
        assert len(receiver.attempts) == REFUSALS_MAX
        receiver.status = 200
        put(sender, "moved")
        until(lambda: receiver.kinds == ["moved"], "the next event")


def test_the_oldest_events_are_dropped_and_counted() -> None:
    receiver = WebhookReceiver()
    with started(receiver, max_queued_events=2) as sender:
        put(sender, "started")
        until(lambda: not sender.counts().up, "the first event is being sent")
        put(sender, "leading", "attached", "gap", "moved")
        assert sender.counts().dropped == {"queue_full": 2, "given_up": 0}
        with receiver.running():
            until(lambda: receiver.kinds == ["started", "gap", "moved"], "the newest events")


def test_only_the_kinds_of_the_settings_are_sent() -> None:
    receiver = WebhookReceiver()
    with receiver.running(), started(receiver, events=["failed", "gap"]) as sender:
        put(sender, "started", "failed", "attached", "gap")
        until(lambda: receiver.kinds == ["failed", "gap"], "these events")


def test_another_sender_gets_the_waiting_events() -> None:
    receiver = WebhookReceiver()
    receiver.hangs.set()
    with receiver.running(), started(receiver) as old:
        put(old, "started", "leading")
        until(lambda: receiver.hung, "the first event is being sent")
        waiting = old.leave()
        assert [json.loads(one.body)["event"] for one in waiting] == ["started", "leading"]
        receiver.hangs.clear()
        new = WebhookSender(settings(receiver.url, secret=new_secret("b")), waiting)
        new.start()
        until(lambda: receiver.kinds == ["started", "leading"], "both")
        assert all(is_signed(new_secret("b"), one.headers, one.raw) for one in receiver.attempts)
        assert [one.id for one in receiver.attempts] == [one.key for one in waiting]
        new.leave()


def test_the_end_waits_for_a_receiver_that_hangs_no_longer_than_it_may(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sending, "STOP_S", 0.2)
    receiver = WebhookReceiver()
    receiver.hangs.set()
    with receiver.running(), started(receiver) as sender:
        put(sender, "started", "stopped")
        until(lambda: receiver.hung, "it hangs")
        sender.stop()
        assert sender.leave() == [sender._current]


def test_the_end_does_not_wait_for_a_receiver_that_is_down() -> None:
    receiver = WebhookReceiver()
    with started(receiver) as sender:
        put(sender, "started")
        until(lambda: not sender.counts().up, "it is down")
        sender.stop()
        assert not sender._thread.is_alive()


def test_an_error_of_the_library_does_not_end_the_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    receiver = WebhookReceiver()
    calls = 0

    def fails_once(*arguments: Any) -> AttemptFault | None:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise IndexError("of the library")
        return post(*arguments)

    monkeypatch.setattr(sending, "post", fails_once)
    with receiver.running(), started(receiver) as sender:
        put(sender, "started")
        until(lambda: receiver.kinds == ["started"], "it is sent again")
