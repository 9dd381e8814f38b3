"""docs/schema-changes.md lists the forms that the parsers follow. `python -m tests.binlog.sql.test_forms_page` writes
the list anew."""

from __future__ import annotations

import textwrap
from pathlib import Path

from dispatcher.binlog.sql.alter_clauses import CLAUSES
from dispatcher.binlog.sql.statement import STATEMENTS
from dispatcher.binlog.sql.table_options import CREATE_OPTION_FORMS, OPTION_FORMS

PAGE = Path(__file__).parents[3] / "docs/schema-changes.md"
BEGIN, END = "<!-- forms: begin -->\n", "<!-- forms: end -->\n"


def listed(texts: list[str]) -> str:
    lines = [line for text in texts for line in textwrap.wrap(text, 118, subsequent_indent="    ")]
    return "\n".join(["```", *lines, "```"]) + "\n"


def written() -> str:
    """Returns the list as the page should contain it."""
    parts = (
        ("Statements:", [text for text, _ in STATEMENTS]),
        ("Clauses of `ALTER TABLE`:", [clause.form.text for clause in CLAUSES]),
        (
            "Table options of `CREATE TABLE` and `ALTER TABLE`:",
            [form.text for form in OPTION_FORMS],
        ),
        (
            "Table options of `CREATE TABLE` alone:",
            [form.text for form in CREATE_OPTION_FORMS],
        ),
    )
    return "\n".join(f"{title}\n\n{listed(texts)}" for title, texts in parts)


def test_the_page_lists_the_forms() -> None:
    page = PAGE.read_text(encoding="utf-8")
    found = page.split(BEGIN)[1].split(END)[0].strip("\n") + "\n"
    assert found == written(), "run python -m tests.binlog.sql.test_forms_page"


if __name__ == "__main__":
    text = PAGE.read_text(encoding="utf-8")
    before, after = text.split(BEGIN)[0], text.split(END)[1]
    PAGE.write_text(f"{before}{BEGIN}\n{written()}\n{END}{after}", encoding="utf-8")
