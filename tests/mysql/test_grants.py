"""SHOW GRANTS, as the different servers print it."""

from __future__ import annotations

import pytest

from dispatcher.mysql.grants import missing_privileges, parse_grants

MYSQL = "GRANT SELECT, REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO `repl`@`%`"


def test_grants_of_mysql() -> None:
    grants = parse_grants([MYSQL])
    assert grants.account == "`repl`@`%`"
    assert grants.has("REPLICATION SLAVE") and grants.has("REPLICATION CLIENT")
    assert not grants.has("SUPER")
    assert grants.may_select("shop")


def test_the_password_hash_that_mysql_5_6_prints_is_not_kept() -> None:
    line = "GRANT REPLICATION SLAVE ON *.* TO 'repl'@'%' IDENTIFIED BY PASSWORD '*2470C0C06DEE42'"
    grants = parse_grants([line])
    assert grants.account == "'repl'@'%'"
    assert grants.everywhere == {"REPLICATION SLAVE"}
    assert "2470" not in repr(grants)


def test_privileges_of_mariadb_have_other_names() -> None:
    line = "GRANT SELECT, REPLICATION SLAVE, BINLOG MONITOR ON *.* TO `repl`@`%` IDENTIFIED BY ''"
    assert parse_grants([line]).has("REPLICATION CLIENT", "BINLOG MONITOR")


def test_all_privileges() -> None:
    grants = parse_grants(["GRANT ALL PRIVILEGES ON *.* TO `root`@`localhost` WITH GRANT OPTION"])
    assert grants.has("REPLICATION SLAVE") and grants.may_select("anything")


def test_usage_roles_and_proxies_grant_nothing() -> None:
    lines = [
        "GRANT USAGE ON *.* TO `u`@`%`",
        "GRANT `reader`@`%` TO `u`@`%`",
        "GRANT PROXY ON ``@`` TO `root`@`localhost` WITH GRANT OPTION",
    ]
    grants = parse_grants(lines)
    assert grants.everywhere == {"USAGE"} and not grants.may_select("shop")


def test_an_account_with_odd_characters() -> None:
    grants = parse_grants(["GRANT SELECT ON *.* TO `o``dd ON *.* TO`@`10.%`"])
    assert grants.account == "`o``dd ON *.* TO`@`10.%`"


@pytest.mark.parametrize(
    ("line", "database", "allowed"),
    [
        ("GRANT SELECT ON `shop`.* TO `u`@`%`", "shop", True),
        ("GRANT SELECT ON `shop`.* TO `u`@`%`", "billing", False),
        ("GRANT SELECT ON `shop`.* TO `u`@`%`", "Shop", False),
        ("GRANT ALL PRIVILEGES ON `shop`.* TO `u`@`%`", "shop", True),
        ("GRANT INSERT, UPDATE ON `shop`.* TO `u`@`%`", "shop", False),
        ("GRANT SELECT ON `shop%`.* TO `u`@`%`", "shop_eu", True),
        ("GRANT SELECT ON `shop_eu`.* TO `u`@`%`", "shopxeu", True),
        (r"GRANT SELECT ON `shop\_eu`.* TO `u`@`%`", "shopxeu", False),
        (r"GRANT SELECT ON `shop\_eu`.* TO `u`@`%`", "shop_eu", True),
        ("GRANT SELECT ON `a.b`.* TO `u`@`%`", "a.b", True),
        ("GRANT SELECT ON `a.b`.* TO `u`@`%`", "axb", False),
        ("GRANT SELECT ON `a``b`.* TO `u`@`%`", "a`b", True),
        ("GRANT SELECT ON `shop`.`orders` TO `u`@`%`", "shop", True),
        ("GRANT INSERT (`a`), SELECT (`id`, `na(me`) ON `shop`.`x` TO `u`@`%`", "shop", True),
        ("GRANT INSERT (`select`) ON `shop`.`x` TO `u`@`%`", "shop", False),
        ("GRANT EXECUTE ON PROCEDURE `shop`.`p` TO `u`@`%`", "shop", False),
    ],
)
def test_select_on_a_database(line: str, database: str, allowed: bool) -> None:
    assert parse_grants(["GRANT USAGE ON *.* TO `u`@`%`", line]).may_select(database) is allowed


def test_the_case_of_names_follows_the_server_s_setting() -> None:
    grants = parse_grants(["GRANT SELECT ON `shop`.* TO `u`@`%`"])
    assert grants.may_select("SHOP", 1)


def test_a_partial_revoke_removes_a_database() -> None:
    grants = parse_grants([MYSQL, "REVOKE SELECT ON `shop`.* FROM `repl`@`%`"])
    assert not grants.may_select("shop") and grants.may_select("billing")


def test_a_grant_on_a_table_is_valid_after_a_partial_revoke() -> None:
    lines = [
        MYSQL,
        "GRANT SELECT ON `shop`.`orders` TO `repl`@`%`",
        "REVOKE SELECT ON `shop`.* FROM `repl`@`%`",
    ]
    assert parse_grants(lines).may_select("shop")


def test_a_pattern_of_many_wildcards_is_matched_quickly() -> None:
    """A regular expression for this pattern would take extremely long."""
    line = f"GRANT SELECT ON `{'%a' * 30}%b`.* TO `u`@`%`"
    grants = parse_grants(["GRANT USAGE ON *.* TO `u`@`%`", line])
    assert not grants.may_select("a" * 64)
    assert grants.may_select("a" * 63 + "b")


@pytest.mark.parametrize(
    ("line", "lacking"),
    [
        ("GRANT SELECT, INSERT ON `state`.* TO `u`@`%`", ("UPDATE",)),
        ("GRANT SELECT, UPDATE ON `st%`.* TO `u`@`%`", ()),
        ('GRANT SELECT, UPDATE ON "state".* TO "u"@"%"', ()),  # sql_mode ANSI_QUOTES
        ("GRANT ALL PRIVILEGES ON `state`.* TO `u`@`%`", ()),
        ("GRANT ALL PRIVILEGES ON *.* TO `u`@`%`", ()),
        ("GRANT SELECT, UPDATE ON *.* TO `u`@`%`", ()),
        ("GRANT ALL PRIVILEGES ON `other`.* TO `u`@`%`", ("SELECT", "UPDATE")),
        ("GRANT SELECT, UPDATE ON `state`.`lease` TO `u`@`%`", ("SELECT", "UPDATE")),
    ],
)
def test_privileges_on_a_whole_database(line: str, lacking: tuple[str, ...]) -> None:
    assert parse_grants([line]).lacking("state", ["SELECT", "UPDATE"]) == lacking


def test_a_lacking_database_is_told_with_the_nearest_one_that_may_be_read() -> None:
    lines = [
        r"GRANT SELECT ON `shop\_eu`.* TO `r`@`%`",
        "GRANT SELECT ON `crm`.`people` TO `r`@`%`",
        "GRANT SELECT ON `sho%`.* TO `r`@`%`",
    ]
    grants = parse_grants(["GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO `r`@`%`", *lines])
    assert grants.readable_databases() == ["shop_eu", "crm"]
    crn, far = missing_privileges(grants, ["crn", "billing"])
    assert crn.what.endswith("on `crn`.*, or the server has no such database (the nearest is crm)")
    assert far.what.endswith("on `billing`.*, or the server has no such database")
