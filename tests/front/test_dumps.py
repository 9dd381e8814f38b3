"""What a replication client gets through the front."""

from __future__ import annotations

from tests.front.fronted import Fronted


def test_mysqlbinlog_reads_the_consumer_s_events(fronted: Fronted) -> None:
    fronted.insert("shop", 1, 3)
    fronted.insert("other", 1, 3)
    fronted.insert("shop", 4, 3)
    first = fronted.server.execute("SHOW BINARY LOGS")[0][0]
    text = fronted.mysqlbinlog("-vv", first)
    print(text)
    assert text.count("### INSERT INTO `shop`.`t`") == 6
    assert "`other`" not in text
