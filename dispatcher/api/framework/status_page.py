"""The status page at /, its files, its login, and the data that it shows.

The daemon serves all files of the page. The content security policy forbids the browser to load anything else. The
files are the same for everyone and need no token; the data need a token. `static/vendor/` contains libraries as their
authors published them.
"""

from __future__ import annotations

import html
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any
from urllib.parse import parse_qs

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse, StreamingResponse
from starlette.exceptions import HTTPException

from dispatcher.access.tokens import Token
from dispatcher.api.access.guard import Guard
from dispatcher.api.access.logins import LOGIN_REMEDY, LOGIN_S, VIEW_SCOPES, cookie_name
from dispatcher.api.answers.long_answer import package_file
from dispatcher.api.calls.feed import StatusFeed, StatusSource
from dispatcher.model.errors import BinlogError, ErrorKind, UserError

_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self';"
    " base-uri 'none'; frame-ancestors 'none'"
)
_HEADERS = {"Content-Security-Policy": _POLICY, "Referrer-Policy": "same-origin"}
_FORM_BYTES_MAX = 8192
_TYPES = {
    "css": "text/css",
    "js": "text/javascript",
    "mjs": "text/javascript",
    "svg": "image/svg+xml",
}
FILES = (
    "page.css", "page.mjs", "format.mjs", "plots.mjs", "topology.mjs", "timeline.mjs", "icon.svg",
    "vendor/preact.mjs", "vendor/htm.mjs", "vendor/uPlot.iife.min.js", "vendor/uPlot.min.css",
)  # fmt: skip


def status_page_routes(guard: Guard, source: StatusSource, feed: StatusFeed) -> APIRouter:
    """The routes of the status page: GET /, and the files and data that the page loads. `/status/...` also accepts a
    token in the Authorization header."""
    router = APIRouter(include_in_schema=False)

    def viewer(request: Request) -> Token:
        token = guard.identify_viewer(request)
        token.require(*VIEW_SCOPES)
        return token

    @router.get("/")
    async def page(request: Request) -> Response:
        try:
            viewer(request)
        except BinlogError:
            return _redirect("login")
        return Response(_file("page.html"), headers=_HEADERS, media_type="text/html")

    @router.get("/status/viewer")
    async def who(request: Request) -> Response:
        token = viewer(request)
        names = None if token.consumers is None else sorted(token.consumers)
        return JSONResponse(
            {
                "login": bool(guard.tokens),
                "consumers": names,
                "viewers": feed.viewers,
                "room": feed.has_room(token),
            }
        )

    @router.get("/status/events")
    async def events(request: Request) -> Response:
        return _EventStream(feed, viewer(request), lambda: viewer(request))

    @router.get("/status/consumers/{name}")
    async def consumer(name: str, request: Request) -> Response:
        """The complete row of a consumer, and the samples of its last minutes."""
        viewer(request).require_consumer(name)
        return JSONResponse({"row": source.row(name), "history": source.history(name)})

    for name in FILES:
        router.add_api_route(f"/static/{name}", _static(name))
    _login_routes(router, guard)
    return router


def _login_routes(router: APIRouter, guard: Guard) -> None:
    @router.get("/login")
    async def form() -> Response:
        return _form("") if guard.tokens else _redirect("./")

    @router.post("/login")
    async def login(request: Request) -> Response:
        try:
            secret = await _token_of_form(request)
            number = guard.logins.open(secret, client=request.scope.get("client"))
        except BinlogError as error:
            status = 401 if error.kind is ErrorKind.UNAUTHORIZED else 403
            return _form(str(error), status)
        answer = _redirect("./")
        answer.set_cookie(
            cookie_name(request),
            number,
            max_age=LOGIN_S,
            secure=request.url.scheme == "https",
            httponly=True,
            samesite="strict",
        )
        return answer

    @router.post("/logout")
    async def logout(request: Request) -> Response:
        name = cookie_name(request)
        guard.logins.close(request.cookies.get(name, ""))
        answer = _redirect("login")
        answer.delete_cookie(name, httponly=True, samesite="strict")
        return answer


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


async def _token_of_form(request: Request) -> str:
    """The field `token` of a form. Raises UserError, HTTPException (413)."""
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > _FORM_BYTES_MAX:
            raise HTTPException(413, f"the form is larger than {_FORM_BYTES_MAX} bytes")
    fields = parse_qs(body.decode("utf-8", "replace"))
    if not fields.get("token"):
        raise UserError(ErrorKind.UNAUTHORIZED, "a token is required", remedy=LOGIN_REMEDY)
    return fields["token"][0].strip()


def _form(error: str, status: int = 200) -> Response:
    text = _file("login.html").decode()
    shown = f'<p class="refused" role="alert">{html.escape(error)}</p>' if error else ""
    return Response(text.replace("<!-- error -->", shown), status, _HEADERS, "text/html")


def _redirect(to: str) -> Response:
    """`to`: a relative URL, because a proxy may serve the page below a path of its own."""
    return Response(status_code=303, headers={"Location": to, **_HEADERS})


def _static(name: str) -> Callable[[Request], Awaitable[Response]]:
    media_type = _TYPES[name.rpartition(".")[2]]

    async def file(request: Request) -> Response:  # noqa: ARG001 - the framework passes it
        return Response(_file(name), media_type=media_type)

    return file


def _file(name: str) -> bytes:
    return package_file("dispatcher.api", "static", name)
