"""Clauses of ALTER TABLE: what they do to columns, keys and rows."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from dispatcher.binlog.sql.alter_clauses import ParsedAlter
from dispatcher.binlog.sql.clauses import (
    AddColumnClause,
    ChangeColumnClause,
    ColumnPosition,
    Computed,
    ConvertCharsetClause,
    DefinedColumn,
    DropColumnClause,
    DropKeyClause,
    Literal,
    LiteralKind,
    PrimaryKeyClause,
    RenameColumnClause,
    RenameKeyClause,
    TableCharsetClause,
    UniqueKeyClause,
    VisibilityClause,
)
from dispatcher.binlog.sql.lexer import (
    ANSI_QUOTES,
    MAXDB,
    NO_BACKSLASH_ESCAPES,
    ORACLE,
    REAL_AS_FLOAT,
)
from dispatcher.binlog.sql.statement import parse_statement
from tests.support.statements import as_logged


def altered(query: str, sql_mode: int = 0, *, mariadb: bool = False) -> ParsedAlter:
    found = parse_statement(as_logged(query, "db", sql_mode, mariadb=mariadb)).alter
    assert found is not None
    return found


def parsed(clauses: str, sql_mode: int = 0, *, mariadb: bool = False) -> ParsedAlter:
    return altered(f"ALTER TABLE t {clauses}", sql_mode, mariadb=mariadb)


def column(definition: str, sql_mode: int = 0, *, mariadb: bool = False) -> DefinedColumn:
    """The one column that ADD defines."""
    found = parsed(f"ADD COLUMN {definition}", sql_mode, mariadb=mariadb)
    assert found.copy_reason == ""
    (clause,) = found.clauses
    assert isinstance(clause, AddColumnClause)
    return clause.column


@pytest.mark.parametrize(
    "clauses",
    [
        "ADD INDEX (x), DROP FOREIGN KEY f, DROP INDEX `i`, ADD CONSTRAINT c CHECK (a > 1)",
        "ADD VECTOR INDEX (v), ADD FULLTEXT KEY f (a, b) WITH PARSER ngram",
        "ADD CONSTRAINT FOREIGN KEY (a) REFERENCES u (a) ON DELETE RESTRICT",
        "ALTER COLUMN x SET DEFAULT 5, ALTER INDEX i INVISIBLE",
        "ENGINE=InnoDB ROW_FORMAT=DYNAMIC, COMMENT='modify x'",
        "DEFAULT CHARACTER SET = latin1 COLLATE latin1_bin",
        "ADD PARTITION (PARTITION p1 VALUES LESS THAN (10))",
        "PARTITION BY RANGE COLUMNS (a, b) (PARTITION p VALUES LESS THAN (1, MAXVALUE))",
        "REORGANIZE PARTITION p, q INTO (PARTITION r VALUES IN (1, 2))",
        "PARTITION BY SYSTEM_TIME INTERVAL 1 MONTH STARTS '2024-01-01' AUTO PARTITIONS 3",
        "PARTITION BY SYSTEM_TIME LIMIT 1000 (PARTITION p HISTORY, PARTITION q CURRENT)",
        "RENAME INDEX a TO b",
        "DISABLE KEYS",
        "ORDER BY a, b DESC, `c`",
        "FORCE, ALGORITHM=INPLACE, LOCK=NONE",
        "",
    ],
)
def test_clauses_that_keep_columns_and_rows(clauses: str) -> None:
    found = parsed(clauses)
    assert (found.clauses, found.copy_reason, found.renamed_to) == ([], "", None)


@pytest.mark.parametrize(
    "clause",
    [
        "TRUNCATE PARTITION p0",
        "DROP PARTITION p0",
        "EXCHANGE PARTITION p WITH TABLE u",
        "CONVERT PARTITION p TO TABLE u",
        "CONVERT TABLE u TO PARTITION p VALUES LESS THAN (3)",
        "DISCARD TABLESPACE",
        "IMPORT TABLESPACE",
        "ADD SYSTEM VERSIONING",
        "DROP SYSTEM VERSIONING",
        "ADD PERIOD FOR p (a, b)",
        "UNION=(a,b)",
        "ENGINE=BLACKHOLE",
        "ADD x FROBNICATED",
        "FROBNICATE",
        "ADD (x INT",
        "ADD x INT DEFAULT",
    ],
)
def test_clauses_that_change_rows_or_are_not_understood(clause: str) -> None:
    for clauses in (clause, f"ADD INDEX (x), {clause}", f"/* ! */ {clause} -- a"):
        assert parsed(clauses).copy_reason


def test_the_reason_is_the_clause() -> None:
    assert parsed("ADD x INT, FROBNICATE a = (1, 2), DROP y").copy_reason == "FROBNICATE a = (1, 2)"
    assert parsed("EXCHANGE PARTITION p WITH TABLE x.u").copy_reason == "EXCHANGE PARTITION"


def test_all_clauses_of_one_statement() -> None:
    found = altered(
        "/* c */ ALTER ONLINE TABLE IF EXISTS `a`.`b` NOWAIT ADD x INT NOT NULL FIRST,"
        " ADD IF NOT EXISTS (y INT, KEY k (y), PRIMARY KEY (y, z(10) DESC), w INT),"
        " DROP COLUMN IF EXISTS z RESTRICT,"
        " CHANGE COLUMN `o``o` n BIGINT AFTER `x`, MODIFY m TEXT, RENAME COLUMN p TO q, DROP PRIMARY KEY,"
        " CONVERT TO CHARSET 'utf8' COLLATE utf8_bin, RENAME AS c.d;"
    )
    assert found.table == ("a", "b")
    assert found.renamed_to == ("c", "d")
    assert found.copy_reason == ""
    key, *clauses = found.clauses[2], *found.clauses[:2], *found.clauses[3:]
    assert key == PrimaryKeyClause(("y", "z"), (0, 10))
    assert clauses == [
        AddColumnClause(DefinedColumn("x", "int", nullable=False), ColumnPosition()),
        AddColumnClause(DefinedColumn("y", "int"), if_not_exists=True),
        AddColumnClause(DefinedColumn("w", "int"), if_not_exists=True),
        DropColumnClause("z", if_exists=True),
        ChangeColumnClause("o`o", DefinedColumn("n", "bigint"), ColumnPosition("x")),
        ChangeColumnClause("m", DefinedColumn("m", "text")),
        RenameColumnClause("p", "q"),
        PrimaryKeyClause(),
        ConvertCharsetClause("utf8mb3", "utf8_bin"),
    ]


@pytest.mark.parametrize("index", ['"PRIMARY"', "`primary`", "PRIMARY"])
def test_dropping_the_index_named_primary_drops_the_key(index: str) -> None:
    assert parsed(f"DROP INDEX {index}", ANSI_QUOTES).clauses == [PrimaryKeyClause()]


@pytest.mark.parametrize(
    ("written", "text", "charset"),
    [
        ("INT(11) ZEROFILL", "int unsigned", ""),
        ("INTEGER SIGNED", "int", ""),
        ("BOOLEAN", "tinyint", ""),
        ("INT8 UNSIGNED", "bigint unsigned", ""),
        ("MIDDLEINT", "mediumint", ""),
        ("DEC", "decimal(10,0)", ""),
        ("FIXED(7)", "decimal(7,0)", ""),
        ("NUMERIC(12,4) UNSIGNED", "decimal(12,4) unsigned", ""),
        ("DOUBLE PRECISION", "double", ""),
        ("REAL", "double", ""),
        ("FLOAT(24)", "float", ""),
        ("FLOAT(25)", "double", ""),
        ("FLOAT(7,4)", "float(7,4)", ""),
        ("BIT", "bit(1)", ""),
        ("YEAR(4)", "year", ""),
        ("DATETIME(0)", "datetime", ""),
        ("TIMESTAMP(6)", "timestamp(6)", ""),
        ("CHAR", "char(1)", ""),
        ("CHARACTER VARYING (20) CHARACTER SET latin1 BINARY", "varchar(20)", "latin1"),
        ("NATIONAL VARCHAR(3)", "varchar(3)", "utf8mb3"),
        ("NCHAR(3)", "char(3)", "utf8mb3"),
        ("VARCHAR(3) CHARSET binary", "varbinary(3)", ""),
        ("CHAR(3) BYTE", "binary(3)", ""),
        ("TEXT COLLATE binary", "blob", ""),
        ("TEXT COLLATE latin1_german1_ci", "text", "latin1"),
        ("VARCHAR(9) COLLATE uca1400_ai_ci", "varchar(9)", ""),
        ("VARCHAR(9) COMPRESSED COMMENT 'x'", "varchar(9)", ""),
        ("BLOB(200)", "tinyblob", ""),
        ("TEXT(70000)", "mediumtext", ""),
        ("LONG VARCHAR", "mediumtext", ""),
        ("LONG VARBINARY", "mediumblob", ""),
        ("JSON", "json", ""),
        ("GEOMCOLLECTION NOT NULL SRID 4326", "geometrycollection", ""),
        ("VECTOR(3)", "vector(3)", ""),
        ("UUID", "uuid", ""),
        (r"ENUM('a','b''c','d\'e  ', 'f\\g' 'h')", r"enum('a','b''c','d''e','f\\gh')", ""),
        ("SET('x','y') CHARACTER SET utf8mb4", "set('x','y')", "utf8mb4"),
    ],
)
def test_types_are_written_as_information_schema_has_them(
    written: str, text: str, charset: str
) -> None:
    found = column(f"c {written}")
    assert (found.type, found.charset) == (text, charset)


@pytest.mark.parametrize(
    ("written", "sql_mode", "text"),
    [
        ("REAL", REAL_AS_FLOAT, "float"),
        ("TIMESTAMP", MAXDB, "datetime"),
        ("DATE", ORACLE, "datetime"),
        ("NUMBER(9,2)", ORACLE, "decimal(9,2)"),
        ("VARCHAR2(9 CHAR)", ORACLE, "varchar(9)"),
        ("RAW(16)", ORACLE, "varbinary(16)"),
    ],
)
def test_sql_mode_chooses_among_types(written: str, sql_mode: int, text: str) -> None:
    assert column(f"c {written}", sql_mode, mariadb=True).type == text


def test_types_of_mysql_have_no_meaning_of_oracle() -> None:
    """MySQL 5.6 and 5.7 have the sql_mode ORACLE, but there it changes no type."""
    assert column("c DATE", ORACLE).type == "date"


@pytest.mark.parametrize(
    "clause",
    [
        "ADD COLUMN IF NOT EXISTS b INT PRIMARY KEY",
        "MODIFY IF EXISTS b INT PRIMARY KEY",
        "ADD PRIMARY KEY IF NOT EXISTS (b)",
    ],
)
def test_a_primary_key_that_may_exist_is_not_followed(clause: str) -> None:
    """MariaDB ignores the key if the table has one."""
    assert "primary key" in parsed(clause).copy_reason


@pytest.mark.parametrize(
    ("written", "kind", "text"),
    [
        ("5", LiteralKind.NUMBER, "5"),
        ("-1.50", LiteralKind.NUMBER, "-1.50"),
        ("+.5", LiteralKind.NUMBER, ".5"),
        ("1e-3", LiteralKind.NUMBER, "1e-3"),
        ("TRUE", LiteralKind.NUMBER, "1"),
        ("NULL", LiteralKind.NULL, ""),
        ("'it''s' ' b'", LiteralKind.TEXT, "it's b"),
        (r"'a\n\%\'\\'", LiteralKind.TEXT, "a\n\\%'\\"),
        ("_utf8mb4'é'", LiteralKind.OTHER, ""),
        ("N'a'", LiteralKind.OTHER, ""),
        ("DATE'2024-01-01'", LiteralKind.OTHER, ""),
        ("x'00Ff'", LiteralKind.BYTES, "00ff"),
        ("0x123", LiteralKind.BYTES, "0123"),
        ("b'100000001'", LiteralKind.BYTES, "0101"),
        ("_binary'ab'", LiteralKind.OTHER, ""),
    ],
)
def test_constants_of_default(written: str, kind: LiteralKind, text: str) -> None:
    for rest in ("", " NOT NULL COMMENT 'c, d'", " ON UPDATE CURRENT_TIMESTAMP(3)", ", ADD y INT"):
        clause = parsed(f"ADD c INT DEFAULT {written}{rest}").clauses[0]
        assert isinstance(clause, AddColumnClause)
        assert clause.column.default == Literal(kind, text)
        assert clause.column.computed is Computed.NO


@pytest.mark.parametrize(
    ("written", "computed"),
    [
        ("INT DEFAULT (1 + 1)", Computed.EXPRESSION),
        ("INT DEFAULT (7)", Computed.EXPRESSION),
        ("VARCHAR(9) DEFAULT ('x')", Computed.EXPRESSION),
        ("INT DEFAULT 1 + 1 NOT NULL", Computed.EXPRESSION),
        ("INT DEFAULT (uuid_short()) COMMENT 'a'", Computed.EXPRESSION),
        ("TIMESTAMP NULL DEFAULT CURRENT_TIMESTAMP(6) ON UPDATE NOW(6)", Computed.EXPRESSION),
        ("INT DEFAULT NEXT VALUE FOR s", Computed.EXPRESSION),
        ("TEXT DEFAULT (concat('a', (b)))", Computed.EXPRESSION),
        ("INT AS (a + 1)", Computed.GENERATED),
        ("INT GENERATED ALWAYS AS (a + (1)) STORED NOT NULL", Computed.GENERATED),
        ("TIMESTAMP(6) GENERATED ALWAYS AS ROW START INVISIBLE", Computed.GENERATED),
        ("SERIAL", Computed.AUTO_INCREMENT),
        ("INT AUTO_INCREMENT UNIQUE KEY", Computed.AUTO_INCREMENT),
        ("INT SERIAL DEFAULT VALUE", Computed.AUTO_INCREMENT),
    ],
)
def test_values_that_the_server_computes(written: str, computed: Computed) -> None:
    assert column(f"c {written}").computed is computed


@pytest.mark.parametrize(
    "attributes",
    [
        "COLUMN_FORMAT DYNAMIC STORAGE DISK VISIBLE",
        "ENGINE_ATTRIBUTE = '{}' SECONDARY_ENGINE_ATTRIBUTE '{}'",
        "CHECK (c > (1)) NOT ENFORCED",
        "CONSTRAINT k CHECK (c > 1)",
        "CONSTRAINT CHECK (c > 1)",
        "REFERENCES u (id) MATCH FULL ON DELETE SET NULL ON UPDATE NO ACTION",
        "COMMENT 'drop y, add z'",
        "WITHOUT SYSTEM VERSIONING",
        "`encrypted`='yes' compression_level=3",
        "PARTITION BY HASH (c) PARTITIONS 4",
    ],
)
def test_attributes_that_do_not_matter(attributes: str) -> None:
    assert column(f"c INT {attributes}") == DefinedColumn("c", "int")


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("c INT INVISIBLE", DefinedColumn("c", "int", visible=False)),
        ("c INT UNIQUE KEY", DefinedColumn("c", "int", unique=True)),
        ("c INT UNIQUE VISIBLE", DefinedColumn("c", "int", unique=True)),
        ("c CHAR(3) BINARY", DefinedColumn("c", "char(3)", collation="binary")),
        ("c TEXT COLLATE utf8mb4_bin", DefinedColumn("c", "text", "utf8mb4", collation="utf8mb4_bin")),
    ],
)  # fmt: skip
def test_attributes_of_the_definition(written: str, expected: DefinedColumn) -> None:
    assert column(written) == expected


@pytest.mark.parametrize(
    ("clauses", "expected"),
    [
        ("ADD UNIQUE (a)", UniqueKeyClause("", ("a",))),
        ("ADD UNIQUE KEY k USING BTREE (a DESC, b(7)) COMMENT 'x'", UniqueKeyClause("k", ("a", "b"), (0, 7))),
        ("ADD UNIQUE INDEX USING HASH (a)", UniqueKeyClause("", ("a",))),
        ("ADD UNIQUE ((a + 1), b)", UniqueKeyClause("", (None, "b"))),
        ("ADD CONSTRAINT s UNIQUE (a)", UniqueKeyClause("s", ("a",))),
        ("ADD CONSTRAINT s UNIQUE KEY k (a)", UniqueKeyClause("k", ("a",))),
        ("ADD UNIQUE IF NOT EXISTS k (a)", UniqueKeyClause("k", ("a",), if_not_exists=True)),
        ("DROP INDEX k", DropKeyClause("k")),
        ("DROP CONSTRAINT k", DropKeyClause("k")),
        ("RENAME INDEX a TO b", RenameKeyClause("a", "b")),
        ("ALTER COLUMN c SET INVISIBLE", VisibilityClause("c", visible=False)),
        ("ALTER `c` SET VISIBLE", VisibilityClause("c", visible=True)),
        ("DEFAULT CHARACTER SET = latin1", TableCharsetClause("latin1")),
        ("CHARSET 'utf8'", TableCharsetClause("utf8mb3")),
        ("COLLATE latin1_bin", TableCharsetClause(collation="latin1_bin")),
    ],
)  # fmt: skip
def test_clauses_that_change_only_the_definition(clauses: str, expected: object) -> None:
    found = parsed(f"{clauses}, FORCE")
    assert (found.clauses, found.definition, found.copy_reason) == ([], [expected], "")


def test_sql_mode_decides_what_a_quote_means() -> None:
    assert column('"x" INT', ANSI_QUOTES).name == "x"
    clauses = r"ADD x INT COMMENT 'a\', DROP y -- '"
    assert len(parsed(clauses).clauses) == 1
    assert len(parsed(clauses, NO_BACKSLASH_ESCAPES).clauses) == 2


def test_ignore_drops_duplicates() -> None:
    query = "ALTER IGNORE TABLE t ADD UNIQUE (a)"
    assert altered(query).copy_reason
    assert not altered(query.replace("IGNORE ", "")).copy_reason


@pytest.mark.parametrize(
    ("clauses", "reason"),
    [
        ("COMMENT='x' ENGINE=BLACKHOLE", "ENGINE=BLACKHOLE"),
        ("AUTO_INCREMENT=5 ENGINE BLACKHOLE", "ENGINE=BLACKHOLE"),
        ("ENGINE='blackhole' COMMENT 'x'", "ENGINE=BLACKHOLE"),
        ("COMMENT='x' UNION=(m2)", "COMMENT='...' UNION=(m2)"),
        (
            "COMMENT='x' ENGINE=InnoDB, ROW_FORMAT=DYNAMIC KEY_BLOCK_SIZE 8 `PAGE_COMPRESSED`='ON'",
            "",
        ),
    ],
)
def test_options_need_no_commas(clauses: str, reason: str) -> None:
    assert parsed(clauses).copy_reason == reason


@pytest.mark.parametrize("name", ["m", "t.m", "`db`.t.m", "T.m"])
def test_a_column_may_be_qualified_by_its_table(name: str) -> None:
    assert parsed(f"MODIFY {name} TEXT").clauses == [
        ChangeColumnClause("m", DefinedColumn("m", "text"))
    ]
    assert parsed(f"CHANGE a {name} TEXT AFTER t.b").clauses == [
        ChangeColumnClause("a", DefinedColumn("m", "text"), ColumnPosition("b"))
    ]


def test_a_column_of_another_table_is_in_doubt() -> None:
    assert parsed("MODIFY u.m TEXT").doubt == "MODIFY u.m TEXT"


@pytest.mark.parametrize(
    ("clauses", "copies"),
    [
        ("MODIFY c INT UNIQUE", True),
        ("MODIFY b VARCHAR(9) COLLATE utf8mb4_general_ci", True),
        ("ADD CHECK (a > 1)", True),
        ("ADD INDEX (a), ADD UNIQUE KEY (b)", True),
        ("PARTITION BY RANGE (a) (PARTITION p VALUES LESS THAN (3))", True),
        ("ADD INDEX (a) PARTITION BY HASH (a)", True),
        ("CONVERT TO CHARACTER SET latin1", True),
        ("DROP COLUMN a", True),
        ("ENGINE=MyISAM", True),
        ("ADD INDEX (a), RENAME TO u, COMMENT='x', ALTER a SET DEFAULT 1, ALGORITHM=COPY", False),
    ],
)
def test_ignore_is_followed_only_if_it_deletes_no_rows(clauses: str, copies: bool) -> None:
    assert bool(altered(f"ALTER IGNORE TABLE t {clauses}").copy_reason) is copies


@pytest.mark.parametrize("query", ["UPDATE t SET a = 1", "ALTER", "ALTER TABLE t ADD 'x"])
def test_what_is_no_alter_table(query: str) -> None:
    statement = parse_statement(as_logged(query, "db"))
    assert statement.doubt and statement.alter is None


@pytest.mark.parametrize(
    "text",
    [
        lambda n: "ALTER TABLE t ADD " + "(" * n,
        lambda n: "ALTER TABLE t ADD (" + "(a, " * n,
        lambda n: "ALTER TABLE t ADD " + "," * n,
        lambda n: "ALTER TABLE t ADD c INT DEFAULT " + "(" * n + "1" + ")" * n,
        lambda n: "ALTER TABLE t ADD c INT DEFAULT " + "- " * n,
        lambda n: "ALTER TABLE t " + ", ".join(f"ADD c{i} INT DEFAULT {i}" for i in range(n)),
        lambda n: "ALTER TABLE t ADD e ENUM(" + ",".join(f"'{i}'" for i in range(n)) + ")",
        lambda n: "ALTER TABLE t ADD e ENUM('" + "\\'" * n + "')",
        lambda n: "ALTER TABLE t COMMENT '" + "\\'" * n,
    ],
    ids=["brackets", "list", "commas", "default", "signs", "clauses", "labels", "escapes", "open"],
)
def test_the_time_is_linear_in_the_length(text: Callable[[int], str]) -> None:
    def shortest(n: int) -> float:
        query, times = text(n), []
        for _ in range(3):
            start = time.thread_time()
            parse_statement(as_logged(query, "db"))
            times.append(time.thread_time() - start)
        return min(times)

    n = 1000
    while shortest(n) < 0.002 and n < 100_000:  # shorter times are mostly noise
        n *= 2
    assert shortest(4 * n) < 10 * shortest(n)
