"""The status page at /, its files, its login, and the data that it shows.

The daemon serves all files of the page (`dispatcher.web.assets`). The files are the same for everyone and need no
token; the data need a token.
"""

from __future__ import annotations

import html
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any
from urllib.parse import parse_qs

from starlette.responses import Response, StreamingResponse

from dispatcher.access.tokens import Token
from dispatcher.api.access.guard import Guard
from dispatcher.api.access.logins import LOGIN_REMEDY, LOGIN_S, VIEW_SCOPES, cookie_name
from dispatcher.api.answers.problems import refusal
from dispatcher.api.calls.feed import StatusFeed, StatusSource
from dispatcher.api.calls.route import Call, Json, Route
from dispatcher.api.calls.router import read_body
from dispatcher.model.errors import BinlogError, ErrorKind, UserError
from dispatcher.web.assets import HEADERS, SHARED, media_type, static_file

_FORM_BYTES_MAX = 8192
OWN = ("page.css", "page.mjs", "plots.mjs", "snippets.mjs", "topology.mjs", "timeline.mjs")
FILES = (*OWN, *SHARED)


def status_page_routes(guard: Guard, source: StatusSource, feed: StatusFeed) -> Iterator[Route]:
    """The routes of the status page: GET /, and the files and data that the page loads. `/status/...` also accepts a
    token in the Authorization header."""

    def viewer(call: Call) -> Token:
        token = guard.identify_viewer(call.request)
        token.require(*VIEW_SCOPES)
        return token

    async def page(call: Call) -> Response:
        try:
            viewer(call)
        except BinlogError:
            return _redirect("login")
        return Response(_file("page.html"), headers=HEADERS, media_type="text/html")

    async def who(call: Call) -> Json:
        token = viewer(call)
        return {
            "login": bool(guard.tokens),
            "consumers": None if token.consumers is None else sorted(token.consumers),
            "viewers": feed.viewers,
            "room": feed.has_room(token),
        }

    async def events(call: Call) -> Response:
        return _EventStream(feed, viewer(call), lambda: viewer(call))

    async def consumer(call: Call) -> Json:
        """The complete row of a consumer, and the samples of its last minutes."""
        viewer(call).require_consumer(call.consumer)
        return {"row": source.row(call.consumer), "history": source.history(call.consumer)}

    yield Route("GET", "/", page)
    yield Route("GET", "/status/viewer", who)
    yield Route("GET", "/status/events", events)
    yield Route("GET", "/status/consumers/{consumer}", consumer)
    for name in FILES:
        yield Route("GET", f"/static/{name}", _static(name))
    yield from _login_routes(guard)


def _login_routes(guard: Guard) -> Iterator[Route]:
    async def form(_: Call) -> Response:
        return _form("") if guard.tokens else _redirect("./")

    async def login(call: Call) -> Response:
        data = await read_body(call.receive, _FORM_BYTES_MAX)
        if data is None:
            return refusal(413, f"the form is larger than {_FORM_BYTES_MAX} bytes")
        try:
            number = guard.logins.open(_token_of_form(data), client=call.scope.get("client"))
        except BinlogError as error:
            status = 401 if error.kind is ErrorKind.UNAUTHORIZED else 403
            return _form(str(error), status)
        answer = _redirect("./")
        answer.set_cookie(
            cookie_name(call.request),
            number,
            max_age=LOGIN_S,
            secure=call.request.url.scheme == "https",
            httponly=True,
            samesite="strict",
        )
        return answer

    async def logout(call: Call) -> Response:
        name = cookie_name(call.request)
        guard.logins.close(call.request.cookies.get(name, ""))
        answer = _redirect("login")
        answer.delete_cookie(name, httponly=True, samesite="strict")
        return answer

    yield Route("GET", "/login", form)
    yield Route("POST", "/login", login)
    yield Route("POST", "/logout", logout)


class _EventStream(StreamingResponse):
    """A stream of events to one viewer. The viewer is counted from the creation of this object until the client
    disconnects."""

    def __init__(self, feed: StatusFeed, token: Token, identify: Callable[[], Token]) -> None:
        self._feed = feed
        self._viewing = feed.viewing(token)
        self._viewing.__enter__()
        super().__init__(self._stream(identify), media_type="text/event-stream")

    async def _stream(self, identify: Callable[[], Token]) -> AsyncIterator[bytes]:
        async for event in self._feed.events(identify):
            yield event

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._viewing.__exit__(None, None, None)


def _token_of_form(data: bytes) -> str:
    """The field `token` of a form. Raises UserError."""
    fields = parse_qs(data.decode("utf-8", "replace"))
    if not fields.get("token"):
        raise UserError(ErrorKind.UNAUTHORIZED, "a token is required", remedy=LOGIN_REMEDY)
    return fields["token"][0].strip()


def _form(error: str, status: int = 200) -> Response:
    text = _file("login.html").decode()
    shown = f'<p class="refused" role="alert">{html.escape(error)}</p>' if error else ""
    return Response(text.replace("<!-- error -->", shown), status, HEADERS, "text/html")


def _redirect(to: str) -> Response:
    """`to`: a relative URL, because a proxy may serve the page below a path of its own."""
    return Response(status_code=303, headers={"Location": to, **HEADERS})


def _static(name: str) -> Callable[[Call], Awaitable[Response]]:
    async def file(_: Call) -> Response:
        return Response(_file(name), media_type=media_type(name))

    return file


def _file(name: str) -> bytes:
    return static_file("dispatcher.api", name)
