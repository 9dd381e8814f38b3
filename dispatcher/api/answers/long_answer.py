"""Answers that may be large.

`Response` passes its body to the server in one piece. If the connection uses TLS and its client does not read, the
connection then stores the whole encrypted body. A `LongAnswer` passes its body in parts: each part after most of the
previous part has been sent.
"""

from __future__ import annotations

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

PART_BYTES = 1 << 16


class LongAnswer(Response):
    """A response whose body is sent in parts of `PART_BYTES`."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        headers = self.raw_headers
        await send({"type": "http.response.start", "status": self.status_code, "headers": headers})
        body = memoryview(self.body)
        for start in range(0, max(len(body), 1), PART_BYTES):
            part = body[start : start + PART_BYTES]
            more = start + PART_BYTES < len(body)
            await send({"type": "http.response.body", "body": part, "more_body": more})
