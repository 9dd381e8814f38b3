"""A server whose log names no columns (`binlog_row_metadata=MINIMAL`, the default): the mirror's tables are equal, and
a table whose definition is not known stops alone."""

from __future__ import annotations

import shlex
import subprocess

import pytest

from tests.mirror.harness import MirrorJob
from tests.mirror.printed import commands

pytestmark = pytest.mark.parametrize(
    "job", [("mysql97", "--binlog-row-metadata=MINIMAL")], indirect=True, ids=["mysql97"]
)


def script(n: int, *, pause: bool) -> list[str]:
    """Returns statements that create, fill and alter tables. `n`: part of the names; `pause`: with 50 ms between two
    statements, in which the daemon may look tables up."""
    statements = [
        f"CREATE TABLE t{n} (id INT PRIMARY KEY, a INT, b INT)",
        f"INSERT INTO t{n} VALUES (1, 10, 20)",
        f"ALTER TABLE t{n} CHANGE a b INT, CHANGE b a INT",
        f"INSERT INTO t{n} VALUES (2, 30, 40)",
        f"ALTER TABLE t{n} ADD c VARCHAR(20) DEFAULT 'é' AFTER id",
        f"INSERT INTO t{n} VALUES (3, 'z', 50, 60)",
        f"CREATE TABLE e{n} (id INT PRIMARY KEY, e ENUM('x','y'), s SET('p','q'))",
        f"INSERT INTO e{n} VALUES (1, 'x', 'p'), (2, 'y', 'p,q')",
        f"ALTER TABLE e{n} MODIFY e ENUM('y','x'), MODIFY s SET('q','p')",
        f"INSERT INTO e{n} VALUES (3, 'x', 'p'), (4, 'y', 'q')",
        f"UPDATE e{n} SET e = 'y' WHERE id = 1",
        f"CREATE TABLE u{n} LIKE t{n}",
        f"ALTER TABLE u{n} CHANGE a k INT",
        f"INSERT INTO u{n} VALUES (1, 'u', 1, 2)",
        f"RENAME TABLE t{n} TO v{n}, u{n} TO t{n}, v{n} TO u{n}",
        f"INSERT INTO t{n} VALUES (2, 't', 3, 4)",
        f"INSERT INTO u{n} VALUES (4, 'u', 70, 80)",
        f"ALTER TABLE u{n} RENAME TO w{n}, CHANGE a x INT",
        f"INSERT INTO w{n} VALUES (5, 'w', 5, 6)",
        f"UPDATE w{n} SET x = -1 WHERE id < 3",
        f"DELETE FROM t{n} WHERE id = 1",
    ]
    if pause:
        return [text for statement in statements for text in (statement, "DO SLEEP(0.05)")]
    return statements


@pytest.mark.deep
def test_tables_are_equal_after_alterations_at_once(job: MirrorJob) -> None:
    """The daemon is killed after half of the statements."""
    job.start("shop", now=False)
    for n, pause in enumerate((False, True)):
        statements = script(n, pause=pause)
        middle = len(statements) // 2
        job.server.execute(*statements[:middle], database="shop")
        job.daemon.kill()
        job.server.execute(*statements[middle:], database="shop")
        job.daemon.start()
    job.until_equal("shop")
    job.until_complete("shop")
    assert job.stop() == 0, job.log
    assert "definition" not in job.log


@pytest.mark.rotate(2, of="jobs of Spark")
def test_a_table_whose_definition_is_not_known_stops_alone(job: MirrorJob) -> None:
    """The statements do not show which unique key the server prefers, and the ALTER exchanges two columns before
    the daemon can ask the server."""
    job.daemon.stop()
    job.server.execute(
        "CREATE TABLE fine (id INT PRIMARY KEY, a INT)",
        "INSERT INTO fine VALUES (1, 1)",
        "CREATE TABLE doubted (id INT NOT NULL UNIQUE, n INT NOT NULL UNIQUE, a INT, b INT)",
        "INSERT INTO doubted VALUES (1, 1, 2, 3)",
        "ALTER TABLE doubted CHANGE a b INT, CHANGE b a INT",
        "INSERT INTO doubted VALUES (2, 2, 4, 5)",
        "INSERT INTO fine VALUES (2, 2)",
        "ALTER TABLE fine CHANGE a c INT",
        "INSERT INTO fine VALUES (3, 3)",
        database="shop",
    )
    job.daemon.start()
    job.copies = False
    assert job.run("shop") != 0, job.log
    (stopped,) = job.standing("shop") or [job.log + job.daemon.log]
    assert stopped.startswith("shop.doubted: stopped: table metadata missing: "), stopped
    assert "the definition of table shop.doubted is not known here" in stopped
    assert [text.partition(":")[0] for text in job.differences("shop")] == ["shop.doubted"]
    assert job.daemon.api.row("shop")["state"] == "streaming"
    job.copies = True
    (printed,) = [shlex.split(text) for text in commands(stopped) if "recopy" in text]
    assert printed[:3] == ["python", "-m", "spark_sink"]
    again = job.command(*printed[3:], consumers=("shop",))
    subprocess.run(again, env=job.job_environment(), cwd=job.home, check=True)
    assert job.run("shop") == 0, job.log
    assert job.standing("shop") == [] == job.differences("shop")
