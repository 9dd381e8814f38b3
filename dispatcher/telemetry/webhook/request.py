"""Signs an event and sends it by one POST, as the Standard Webhooks specification 1.0.0 describes:
https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md"""

from __future__ import annotations

import base64
import hashlib
import hmac
import http.client
import socket
import ssl
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import (
    HTTPRedirectHandler,
    HTTPSHandler,
    OpenerDirector,
    ProxyHandler,
    Request,
    build_opener,
)

from dispatcher.settings.webhook import WebhookSettings
from dispatcher.telemetry.outbox import OutMessage
from dispatcher.telemetry.webhook.patience import AttemptFault

# How long the receiver may take to accept the connection, and for each part of its answer.
ANSWER_S = 15.0

_REMEDIES = {
    401: "give the receiver the secret of webhook.secret_file",
    403: "give the receiver the secret of webhook.secret_file",
    404: "correct the path of webhook.url",
    410: "the receiver wants no more events; remove the section webhook, or correct webhook.url",
}


def signed_headers(key: bytes, event_id: str, at: int, body: bytes) -> dict[str, str]:
    """`at`: the time of this attempt, in seconds since 1970. Repetitions have the same `event_id`, and another time."""
    digest = hmac.digest(key, f"{event_id}.{at}.".encode() + body, hashlib.sha256)
    return {
        "webhook-id": event_id,
        "webhook-timestamp": str(at),
        "webhook-signature": f"v1,{base64.b64encode(digest).decode()}",
    }


def post(settings: WebhookSettings, message: OutMessage, at: int) -> AttemptFault | None:
    """Send an event once, and return the fault; None if the receiver has accepted the event."""
    headers = signed_headers(settings.signing_key, message.key, at, message.body)
    headers |= {"Content-Type": "application/json", "User-Agent": "binlog-dispatcher"}
    try:
        opener = _opener(settings)
        request = Request(settings.url, message.body, headers)  # noqa: S310 - the scheme was checked
        with opener.open(request, timeout=ANSWER_S):
            return None
    except HTTPError as error:  # any status but 2xx
        with error:
            return _answered(error)
    except URLError as error:
        reason = error.reason
        text = _not_connected(reason) if isinstance(reason, OSError) else str(reason)
        return AttemptFault(text, sent=False)
    except (OSError, http.client.HTTPException) as error:
        return AttemptFault(_not_answered(error))


class _NoRedirects(HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        """Let the answer be an error."""


def _opener(settings: WebhookSettings) -> OpenerDirector:
    """Uses the proxy of the environment (https_proxy, no_proxy), except for a receiver on this machine. Raises URLError
    if the file of the authority cannot be used."""
    handlers: list[Any] = [_NoRedirects, *([ProxyHandler({})] if settings.loopback else [])]
    if settings.encrypted:
        try:
            handlers.append(HTTPSHandler(context=receiver_tls(settings)))
        except OSError as error:
            raise URLError(f"cannot use webhook.tls.ca: {error}; set it to a PEM file") from error
    return build_opener(*handlers)


def receiver_tls(settings: WebhookSettings) -> ssl.SSLContext:
    """Returns a context that verifies the receiver's name and certificate. Raises OSError."""
    return ssl.create_default_context(cafile=settings.tls.ca)


def _answered(error: HTTPError) -> AttemptFault:
    if 300 <= error.code < 400:
        remedy = "redirects are not followed; set webhook.url to the address to which it redirects"
    else:
        remedy = _REMEDIES.get(error.code, "look at the receiver's log")
    after = error.headers.get("Retry-After", "")
    wait_s = float(after) if after.isascii() and after.isdigit() else 0.0
    return AttemptFault(
        f"the receiver answers {error.code}; {remedy}", status=error.code, wait_s=wait_s
    )


def _not_connected(error: OSError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        what = f"the receiver's certificate is not trusted: {error.verify_message}"
        return f"{what}; set webhook.tls.ca to the authority of this certificate"
    if isinstance(error, ssl.SSLError):
        return "the receiver does not speak TLS; write http:// in webhook.url, or correct its port"
    if isinstance(error, socket.gaierror):
        what = f"the name of the receiver is not found: {error.strerror}"
        return f"{what}; correct the host in webhook.url"
    what = f"no connection within {ANSWER_S:g} s" if isinstance(error, TimeoutError) else str(error)
    return f"{what}; check webhook.url, the firewall, and that the receiver is running"


def _not_answered(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return f"no answer for {ANSWER_S:g} s; look at the receiver's log"
    if isinstance(error, http.client.HTTPException) and not isinstance(error, OSError):
        return "the receiver does not speak HTTP; correct webhook.url"
    return "the receiver closed the connection without an answer; look at the receiver's log"
