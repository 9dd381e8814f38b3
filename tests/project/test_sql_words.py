"""Statements are cut into words by ASCII rules, as servers do. Python's own rules for letters, digits and blanks are
those of Unicode, so the parsers and the schema rules must not use them."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("dispatcher/binlog/sql", "spark_sink/mirror/schema")
FILES = sorted(path for folder in FOLDERS for path in (ROOT / folder).glob("*.py"))
UNICODE = frozenset((
    "upper", "lower", "casefold", "title", "capitalize", "swapcase", "isdigit", "isdecimal", "isnumeric", "isalpha",
    "isalnum", "isspace", "isidentifier",
))  # fmt: skip
# Without arguments, these methods cut at every blank of Unicode.
BLANKS = frozenset(("strip", "lstrip", "rstrip", "split", "rsplit"))
CLASSES = re.compile(r"\\[wWsSdDbB]")
# The modules that compare names of savepoints, columns and labels. People write these names in any language, so
# Unicode's rules of case apply. `isdecimal` examines numbers that the lexer has cut, and the mirror's own names.
NAMES = {
    ("statement.py", "lower"), ("alteration.py", "lower"), ("generated.py", "lower"), ("fills.py", "casefold"),
    ("fills.py", "isdecimal"), ("signature.py", "isdecimal"),
    *((path.name, "lower") for path in FILES if path.parent.name == "schema"),
}  # fmt: skip


def found(path: Path) -> list[str]:
    wrong = []
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            called = node.attr
            if called in UNICODE and (path.name, called) not in NAMES:
                wrong.append(f"{path.name}:{node.lineno}: {called}")
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if node.func.attr in BLANKS and not node.args:
                wrong.append(f"{path.name}:{node.lineno}: {node.func.attr}()")
            ascii_only = any(ast.unparse(each) == "re.ASCII" for each in node.args)
            patterns = [each for each in ast.walk(node) if isinstance(each, ast.Constant)]
            if node.func.attr == "compile" and not ascii_only:
                wrong += [
                    f"{path.name}:{node.lineno}: a class of characters in a pattern"
                    for each in patterns
                    if isinstance(each.value, str) and CLASSES.search(each.value)
                ]
    return wrong


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_no_rule_of_unicode_cuts_a_statement(path: Path) -> None:
    assert found(path) == []
