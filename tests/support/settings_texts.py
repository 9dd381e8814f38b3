"""YAML texts of settings, for tests."""

from __future__ import annotations

from collections.abc import Callable

from dispatcher.settings.model import Settings

MINIMAL = """\
consumers:
  shop: {mysql: "repl@db1:3306", password: "geheim", databases: [shop]}
"""


Load = Callable[..., Settings]


Wrong = Callable[..., list[str]]


def consumer(more: str = "", name: str = "shop") -> str:
    """Returns settings with a consumer in line 2, and with `more` of its keys from line 3 on."""
    base = f"consumers:\n  {name}: &x\n    mysql: repl@db1\n    password: geheim\n"
    return base + "    databases: [shop]\n" + "".join(f"    {line}\n" for line in more.splitlines())
