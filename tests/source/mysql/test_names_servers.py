"""`folded_name` against the servers."""

from __future__ import annotations

from contextlib import closing

import pytest

from dispatcher.model.names import folded_name
from dispatcher.source.mysql.examination import HostReport, with_differing_names
from tests.servers import KINDS, Kind
from tests.servers.plugin import ServerFactory

# A name holds no NUL and no character above U+FFFF.
CHARACTERS = [chr(code) for code in range(1, 0x10000) if not 0xD800 <= code <= 0xDFFF]
AT_ONCE = 2000


@pytest.mark.parametrize("kind", KINDS)
def test_every_character_is_folded_as_the_servers_fold_it(
    kind: Kind, server_factory: ServerFactory
) -> None:
    server = server_factory(kind, "--lower-case-table-names=1")
    with closing(server.connect()) as connection, connection.cursor() as cursor:
        for begin in range(0, len(CHARACTERS), AT_ONCE):
            some = CHARACTERS[begin : begin + AT_ONCE]
            items = ", ".join(
                f"LOWER(CONVERT(_utf8mb4 X'{character.encode().hex()}' USING utf8mb3)"
                " COLLATE utf8mb3_general_ci)".replace("mb3", "" if kind == "mysql56" else "mb3")
                for character in some
            )
            cursor.execute(f"SELECT {items}")
            row = cursor.fetchone()
            assert row is not None
            assert list(row) == [folded_name(character, 1) for character in some]


@pytest.mark.parametrize("kind", KINDS)
def test_a_table_has_the_folded_name(kind: Kind, server_factory: ServerFactory) -> None:
    """The characters are those for which Unicode's rules, or Python's, differ from the servers'."""
    server = server_factory(kind, "--lower-case-table-names=1")
    differing = [c for c in CHARACTERS if folded_name(c, 1) != c.lower()]
    assert len(differing) > 400
    names = [f"T{c}Ä" for c in {*differing[::40], "ẞ", "\u212a", "Σ"}]
    server.execute("CREATE DATABASE Names", *(f"CREATE TABLE Names.`{n}` (a INT)" for n in names))
    shown = {row[0] for row in server.execute("SHOW TABLES FROM names")}
    assert shown == {folded_name(name, 1) for name in names}
    assert {folded_name(name, 2) for name in names} == shown
    assert [folded_name(name, 0) for name in names] == names


def test_hosts_that_compare_names_differently_are_a_finding() -> None:
    reports = [HostReport(f"db{n}", "", (), "", value) for n, value in enumerate((1, 1, None, 0))]
    found = with_differing_names(reports, ["shop"])
    assert [len(report.findings) for report in found] == [0, 0, 0, 1]
    error = found[3].findings[0].error
    assert error.what == "lower_case_table_names=0, on another host of the source 1"
