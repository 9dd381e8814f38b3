"""Counts the lines of the project by package: code, docstrings, comments, blank lines."""

from __future__ import annotations

import ast
import io
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
_KINDS = ("code", "docstrings", "comments", "blanks")
_NO_CODE = frozenset(
    (
        tokenize.NL,
        tokenize.NEWLINE,
        tokenize.INDENT,
        tokenize.DEDENT,
        tokenize.ENCODING,
        tokenize.ENDMARKER,
    )
)


def lines_of(source: str) -> Counter[str]:
    """Return the number of lines of each kind. A line with code and a comment is code; a blank line in a docstring
    belongs to the docstring."""
    documented: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        body = getattr(node, "body", None)
        for statement in body if isinstance(body, list) else ():
            match statement:
                case ast.Expr(value=ast.Constant(value=str()), end_lineno=int(end)):
                    documented.update(range(statement.lineno, end + 1))
    code: set[int] = set()
    comments: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        covered = range(token.start[0], token.end[0] + 1)
        if token.type == tokenize.COMMENT:
            comments.update(covered)
        elif token.type not in _NO_CODE:
            code.update(covered)
    code -= documented
    total = len(source.splitlines())
    return Counter(
        code=len(code),
        docstrings=len(documented),
        comments=len(comments - code),
        blanks=total - len(code) - len(documented) - len(comments - code),
    )


def sizes() -> Iterator[tuple[str, Counter[str]]]:
    """Yield the name and the lines of each package of `dispatcher` and `spark_sink`, of the modules beside them, and of
    the other folders."""
    for half in ("dispatcher", "spark_sink"):
        packages = sorted(p for p in (ROOT / half).iterdir() if (p / "__init__.py").exists())
        for package in packages:
            yield f"{half}/{package.name}", _sum(package.rglob("*.py"))
        yield f"{half}/*.py", _sum((ROOT / half).glob("*.py"))
    for folder in ("tests", "deploy", "benchmarks", "examples"):
        yield folder, _sum((ROOT / folder).rglob("*.py"))


def _sum(files: Iterator[Path]) -> Counter[str]:
    return sum((lines_of(file.read_text(encoding="utf-8")) for file in files), Counter())


def table() -> str:
    rows = list(sizes())
    product = sum((lines for name, lines in rows if "/" in name), Counter[str]())
    shown = [*rows, ("product", product)]
    lines = [f"{'':28}" + "".join(f"{kind:>12}" for kind in _KINDS)]
    lines += [
        f"{name:28}" + "".join(f"{count[kind]:12,}" for kind in _KINDS) for name, count in shown
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.stdout.write(table() + "\n")
