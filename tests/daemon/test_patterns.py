"""Consumers that name databases and tables by patterns, on real servers."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.daemon.conftest import MakeDaemon, Source
from tests.daemon.harness import Problem, Reader, inserted_ids
from tests.servers import Server


def test_patterns_follow_tables_that_are_created_and_renamed(
    mysql97: Server, new_database: Callable[[Server], str], make_daemon: MakeDaemon, source: Source
) -> None:
    database = new_database(mysql97)
    mysql97.execute(f"CREATE TABLE {database}.t (id INT PRIMARY KEY)")
    daemon = make_daemon(
        {
            "patterns": source(
                mysql97,
                f"{database[:-1]}?",
                tables=[f"{database}.t*", f"{database}.s"],
                exclude_tables=["*.t_tmp*"],
                start="earliest",
            )
        }
    )
    daemon.start()
    mysql97.execute(
        f"INSERT INTO {database}.t VALUES (1)",
        f"CREATE TABLE {database}.t2 LIKE {database}.t",
        f"INSERT INTO {database}.t2 VALUES (2)",
        f"CREATE TABLE {database}.t_tmp LIKE {database}.t",
        f"INSERT INTO {database}.t_tmp VALUES (3)",
        f"RENAME TABLE {database}.t_tmp TO {database}.s",
        f"INSERT INTO {database}.s VALUES (4)",
        f"RENAME TABLE {database}.t2 TO {database}.other",
        f"INSERT INTO {database}.other VALUES (5)",
    )
    reader = Reader(daemon, "patterns").open()
    assert inserted_ids(reader.read_to(mysql97)) == [1, 2, 4]
    assert daemon.api.get(f"/v1/consumers/patterns/tables/{database}.s")["key"] == ["id"]
    with pytest.raises(Problem, match="does not read"):
        daemon.api.get(f"/v1/consumers/patterns/tables/{database}.other")
    # A restart reads the rest of the log again by the same patterns.
    daemon.restart()
    mysql97.execute(f"INSERT INTO {database}.t VALUES (6)")
    assert inserted_ids(reader.read_to(mysql97)) == [1, 2, 4, 6]


@pytest.mark.parametrize("server", ["mysql97", "mariadb1011", "mysql56"])
def test_a_database_that_does_not_exist_is_a_warning_until_it_does(
    server: str,
    request: pytest.FixtureRequest,
    new_database: Callable[[Server], str],
    make_daemon: MakeDaemon,
    source: Source,
) -> None:
    instance: Server = request.getfixturevalue(server)
    database = new_database(instance)
    daemon = make_daemon(
        {
            "typo": source(instance, f"{database}x"),
            "later": source(instance, "later_*", database),
            "all": source(instance, "*"),
        }
    )
    api = daemon.start()
    for name in ("typo", "later", "all"):
        api.until_state(name, "streaming")
    (typo,) = api.row("typo")["warnings"]
    assert f"no database {database}x (the nearest is {database})" in typo
    (later,) = api.row("later")["warnings"]
    assert "no database later_*" in later and "GRANT SELECT" in later
    assert api.row("all")["warnings"] == []
    assert daemon.log.count(f"no database {database}x") == 1
