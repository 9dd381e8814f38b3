"""The static files that the web pages of the daemon and of the mirror load, and the HTTP headers of these pages.

The content security policy forbids the browser to load anything from another server. `static/vendor/` contains
libraries as their authors published them.
"""

from __future__ import annotations

from functools import cache
from importlib import resources

_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self';"
    " base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {"Content-Security-Policy": _POLICY, "Referrer-Policy": "same-origin"}
MEDIA_TYPES = {
    "css": "text/css",
    "js": "text/javascript",
    "mjs": "text/javascript",
    "svg": "image/svg+xml",
}
SHARED = (
    "base.css", "format.mjs", "parts.mjs", "icon.svg",
    "vendor/preact.mjs", "vendor/htm.mjs", "vendor/uPlot.iife.min.js", "vendor/uPlot.min.css",
)  # fmt: skip


@cache
def package_file(package: str, *path: str) -> bytes:
    """Returns the content of a package's file. The content is cached, so all answers share its bytes."""
    return resources.files(package).joinpath(*path).read_bytes()


def static_file(package: str, name: str) -> bytes:
    """Returns a file that a page of a package loads: a file of `SHARED`, or of the package's folder `static`."""
    return package_file("dispatcher.web" if name in SHARED else package, "static", name)


def media_type(name: str) -> str:
    return MEDIA_TYPES[name.rpartition(".")[2]]
