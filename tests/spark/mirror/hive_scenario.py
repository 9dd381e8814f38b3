"""A mirror whose tables have names in a Hive metastore with Derby, which one process at a time can open:
`python -m tests.spark.mirror.hive_scenario FOLDER DATABASE SERVER`, where SERVER is the server's address as JSON.

Ends with an AssertionError unless each SELECT by name equals the server.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from spark_sink.mirror.session import spark_session
from spark_sink.mirror.values.catalog_names import CatalogTemplate
from spark_sink.mirror.values.settings import MirrorSettings
from tests.servers import Server
from tests.spark.conftest import Source, Target
from tests.spark.mirror.conftest import Mirror
from tests.support.fake_daemon import fake_daemon
from tests.support.java import QUICK_SPARK


def hive_settings(home: Path) -> MirrorSettings:
    """Settings of a Spark with a metastore in a folder."""
    conf = {
        "spark.sql.catalogImplementation": "hive",
        "spark.sql.warehouse.dir": str(home / "warehouse"),
        "spark.hadoop.javax.jdo.option.ConnectionURL": f"jdbc:derby:;databaseName={home}/db;create=true",
    }
    conf |= dict(setting.split("=", 1) for setting in QUICK_SPARK)
    return MirrorSettings.model_validate(
        {
            "url": "http://127.0.0.1:1",
            "consumers": ["shop"],
            "target": str(home / "target"),
            "spark": {"master": "local[2,4]", "conf": conf},
        }
    )


def play(mirror: Mirror) -> None:
    source, spark = mirror.source, mirror.spark
    catalog = CatalogTemplate.parse("{database}.{table}")

    def assert_equal(*tables: tuple[str, str]) -> None:
        """Apply the changes of the server. Then the catalog must have exactly these tables, (name at the server, name
        in the catalog), with the server's rows."""
        mirror.feed()
        assert mirror.apply(catalog=catalog) == 0
        shown = spark.sql(f"SHOW TABLES IN {source.database}").collect()
        assert sorted(row["tableName"] for row in shown) == sorted(name for _, name in tables)
        for table, name in tables:
            rows = spark.sql(f"SELECT * FROM {source.database}.{name} ORDER BY id").collect()
            assert [row.asDict() for row in rows] == source.rows(table), name
            print(f"{name}: {len(rows)} rows equal the server's", flush=True)

    source.execute(
        *(
            f"CREATE TABLE `{name}` (id INT PRIMARY KEY, v VARCHAR(9))"
            for name in ("orders", "order-lines", "renamed", "gone")
        ),
        "INSERT INTO orders VALUES (1, 'order')",
        "INSERT INTO `order-lines` VALUES (1, 'line'), (2, 'line')",
        "INSERT INTO renamed VALUES (1, 'old')",
        "INSERT INTO gone VALUES (1, 'y')",
    )
    lines = ("order-lines", "order_x002d_lines")
    assert_equal(("orders", "orders"), lines, ("renamed", "renamed"), ("gone", "gone"))

    source.execute(
        "RENAME TABLE orders TO swap, `order-lines` TO orders, swap TO `order-lines`",
        "RENAME TABLE renamed TO old",
        "INSERT INTO orders VALUES (3, 'new')",
        "INSERT INTO `order-lines` VALUES (4, 'z')",
        "ALTER TABLE old ADD w INT",
        "INSERT INTO old VALUES (2, 'x', 5)",
        "DROP TABLE gone",
    )
    assert_equal(("orders", "orders"), lines, ("old", "old"))


def main(folder: str, database: str, server: str) -> None:
    home = Path(folder)
    settings = hive_settings(home)
    (home / "log").mkdir(parents=True)
    with fake_daemon() as daemon:
        address = json.loads(server)
        mysql = Server(**address | {"socket": Path(address["socket"])})
        first = mysql.binlogs()[-1][0]
        source = Source(mysql, database, daemon, first, home / "log")
        spark = spark_session(settings)
        play(Mirror(spark, source, Target(spark, home / "target")))
        spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
