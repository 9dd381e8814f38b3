"""The page /docs: Swagger UI from the files of an installed package, without Internet access.

All scripts and styles come from the daemon. The content security policy forbids the browser to load anything else.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from fastapi import APIRouter, Request, Response
from pydantic_core import to_json

from dispatcher.api.access.guard import Guard
from dispatcher.api.answers.long_answer import LongAnswer, package_file
from dispatcher.api.framework.openapi import describe

_Endpoint = Callable[[Request], Awaitable[Response]]

_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:;"
    " connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = {"Content-Security-Policy": _POLICY, "Referrer-Policy": "no-referrer"}
_HTML = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>binlog-dispatcher</title>
<link rel="stylesheet" href="docs/swagger-ui.css">
<link rel="icon" type="image/png" href="docs/favicon-32x32.png">
</head>
<body>
<div id="swagger-ui"></div>
<script src="docs/swagger-ui-bundle.js"></script>
<script src="docs/start.js"></script>
</body>
</html>
"""
# Leave out the validator badge, which sends the URL of the document to a server of Swagger.
_START = """SwaggerUIBundle({
  url: "openapi.json",
  dom_id: "#swagger-ui",
  validatorUrl: null,
  deepLinking: true,
  presets: [SwaggerUIBundle.presets.apis, SwaggerUIBundle.SwaggerUIStandalonePreset],
});
"""
_FILES = {
    "swagger-ui.css": "text/css",
    "swagger-ui-bundle.js": "text/javascript",
    "favicon-32x32.png": "image/png",
    "start.js": "text/javascript",
}


def page_routes(guard: Guard) -> APIRouter:
    """GET /docs with its files, and GET /openapi.json. They require a token unless `api.open` contains docs."""
    router = APIRouter(include_in_schema=False)

    def admit(request: Request) -> None:
        if not guard.is_open("docs"):
            guard.identify_viewer(request)

    @router.get("/openapi.json")
    async def document(request: Request) -> Response:
        admit(request)
        app = request.app
        if app.openapi_schema is None:
            app.openapi_schema = describe(app)
        return LongAnswer(to_json(app.openapi_schema), media_type="application/json")

    @router.get("/docs")
    async def docs(request: Request) -> Response:
        admit(request)
        return Response(_HTML, headers=_HEADERS, media_type="text/html")

    for name, media_type in _FILES.items():
        router.add_api_route(f"/docs/{name}", _file(name, media_type, admit))
    return router


def _file(name: str, media_type: str, admit: Callable[[Request], None]) -> _Endpoint:
    async def file(request: Request) -> Response:
        admit(request)
        if name == "start.js":
            return Response(_START, media_type=media_type)
        return LongAnswer(package_file("fastapi_swagger.resources", name), media_type=media_type)

    return file
