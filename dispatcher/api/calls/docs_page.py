"""The page /docs: Swagger UI from the files of an installed package, without Internet access.

All scripts and styles come from the daemon. The content security policy forbids the browser to load anything else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache, partial

from pydantic_core import to_json
from starlette.responses import Response

from dispatcher.api.access.guard import Guard
from dispatcher.api.answers.long_answer import LongAnswer
from dispatcher.api.calls.route import Call, Json, Route
from dispatcher.web.assets import package_file

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
}


def docs_routes(guard: Guard, document: Callable[[], Json]) -> Iterator[Route]:
    """GET /docs with its files, and GET /openapi.json. They require a token unless `api.open` contains docs."""

    def route(path: str, make: Callable[[], bytes], media_type: str) -> Route:
        async def answer(call: Call) -> Response:
            if not guard.is_open("docs"):
                guard.identify_viewer(call.request)
            return LongAnswer(make(), headers=_HEADERS, media_type=media_type)

        return Route("GET", path, answer)

    yield route("/openapi.json", cache(lambda: to_json(document())), "application/json")
    yield route("/docs", _HTML.encode, "text/html")
    yield route("/docs/start.js", _START.encode, "text/javascript")
    for name, media_type in _FILES.items():
        file = partial(package_file, "fastapi_swagger.resources", name)
        yield route(f"/docs/{name}", file, media_type)
