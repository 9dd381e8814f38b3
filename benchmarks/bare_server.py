"""An HTTP server that does nothing. It uses the uvicorn and the event loop of the daemon, and its answers are as long
as the answers of the call `read`.

The cost of a call to this server is the part of a reader's cycle that the daemon cannot avoid while it uses uvicorn.
`python -m benchmarks.bare_server` listens, and prints its port.
"""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import uvicorn
import uvloop

_ANSWER = b"x" * 1000  # a position of one GTID set, and one small transaction


async def answer(scope: Any, receive: Any, send: Any) -> None:
    """An ASGI application."""
    if scope["type"] != "http":
        return
    while (await receive()).get("more_body"):
        pass
    headers = [(b"content-length", str(len(_ANSWER)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": _ANSWER})


def main() -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(
        answer, http="httptools", lifespan="off", log_config=None, access_log=False
    )
    print(listener.getsockname()[1], flush=True)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(uvicorn.Server(config).serve([listener]))


if __name__ == "__main__":
    main()
