"""The forms of what CREATE TABLE and ALTER TABLE share: table options, keys, partitioning.

The form of an option includes the option's value. So `COMMENT='x' ENGINE=BLACKHOLE` is two options, although no comma
separates them.

Sources: sql_yacc.yy of MySQL 9.7 (create_table_option) and MariaDB 11.8 (create_table_option, engine_defined_option).
"""

from __future__ import annotations

from dispatcher.binlog.sql import data_types
from dispatcher.binlog.sql.clauses import TableCharsetClause
from dispatcher.binlog.sql.forms import COMMON, Form, Forms, Found, Slot, any_token, at_bracket
from dispatcher.binlog.sql.lexer import NotUnderstoodError, SqlTokens, upper

# Engines whose tables store the rows that are written to them.
_STORING = (
    "INNODB",
    "MYISAM",
    "ARIA",
    "MEMORY",
    "HEAP",
    "ROCKSDB",
    "TOKUDB",
    "NDB",
    "NDBCLUSTER",
    "ARCHIVE",
    "CSV",
)
# Options that MariaDB's engines define; their names may be quoted.
_ENGINE_DEFINED = frozenset((
    "PAGE_COMPRESSED", "PAGE_COMPRESSION_LEVEL", "ENCRYPTED", "ENCRYPTION_KEY_ID", "IETF_QUOTES",
))  # fmt: skip


def _key_parts(tokens: SqlTokens) -> tuple[str, ...]:
    """Consume the columns of a key in brackets. Returns their names; a part that is an expression has no name."""
    tokens.expect("(")
    columns = []
    while True:
        if tokens.at("("):
            tokens.skip_brackets()
        else:
            columns.append(tokens.identifier())
            if tokens.at("("):  # the length of a prefix
                tokens.skip_brackets()
            tokens.accept("WITHOUT", "OVERLAPS")  # MariaDB: a period
        tokens.accept_any("ASC", "DESC")
        if not tokens.accept(","):
            tokens.expect(")")
            return tuple(columns)


def _engine_option(tokens: SqlTokens) -> str:
    token = tokens.advance()
    if token is None or upper(token.name or "") not in _ENGINE_DEFINED:
        raise NotUnderstoodError
    return token.text


def _at_engine_option(tokens: SqlTokens, n: int) -> bool:
    following = tokens.peek(n)
    return following is not None and upper(following.name or "") in _ENGINE_DEFINED


def _engine(tokens: SqlTokens) -> str:
    """Consume an engine's name, in quotes or not. Returns the name in upper case."""
    following = tokens.peek()
    is_text = following is not None and following.kind == "text"
    return upper(tokens.text() if is_text else tokens.identifier())


SLOTS = COMMON | {
    "charset": Slot(data_types.charset_name, any_token),
    "engine": Slot(_engine, any_token),
    "engine option": Slot(_engine_option, _at_engine_option),
    "key parts": Slot(_key_parts, at_bracket),
}


def _slot_of(form: str) -> Slot:
    inner = Form(form, SLOTS)
    return Slot(inner.match, inner.starts)


SLOTS["action"] = _slot_of("{RESTRICT | CASCADE | SET NULL | SET DEFAULT | NO ACTION}")
SLOTS["index option"] = _slot_of(
    "{USING <word> | TYPE <word> | KEY_BLOCK_SIZE [=] <number> | COMMENT <text> | WITH PARSER <word> | VISIBLE"
    " | INVISIBLE | IGNORED | NOT IGNORED | CLUSTERING [=] <word> | ENGINE_ATTRIBUTE [=] <text>"
    " | SECONDARY_ENGINE_ATTRIBUTE [=] <text> | M [=] <number> | DISTANCE [=] <word>}"
)
SLOTS["partition type"] = _slot_of(
    "{LINEAR HASH <brackets> | HASH <brackets> | LINEAR KEY [ALGORITHM = <number>] <brackets>"
    " | KEY [ALGORITHM = <number>] <brackets> | RANGE [COLUMNS] <brackets> | LIST [COLUMNS] <brackets>"
    " | SYSTEM_TIME [INTERVAL <value> <word> | LIMIT <number>] [STARTS <value>] [AUTO]}"
)
SLOTS["partitioning"] = _slot_of(
    "PARTITION BY <partition type> [PARTITIONS <number>]"
    " [SUBPARTITION BY <partition type> [SUBPARTITIONS <number>]] [<brackets>]"
)

# Of these options, only the engine can change columns or rows (`is_rowless`). UNION can, too, so it is not listed.
OPTION_FORMS = tuple(Form(text, SLOTS) for text in (
    "ENGINE [=] <engine>",
    "{AUTO_INCREMENT | AVG_ROW_LENGTH | CHECKSUM | TABLE_CHECKSUM | DELAY_KEY_WRITE | KEY_BLOCK_SIZE | MAX_ROWS"
    " | MIN_ROWS | PAGE_CHECKSUM | TRANSACTIONAL} [=] <number>",
    "{PACK_KEYS | STATS_AUTO_RECALC | STATS_PERSISTENT | STATS_SAMPLE_PAGES} [=] {DEFAULT | <number>}",
    "{COMMENT | COMPRESSION | CONNECTION | ENCRYPTION | ENGINE_ATTRIBUTE | PASSWORD | SECONDARY_ENGINE_ATTRIBUTE"
    " | DATA DIRECTORY | INDEX DIRECTORY} [=] <text>",
    "[DEFAULT] {CHARACTER SET [=] <charset> | CHARSET [=] <charset> | CHAR SET [=] <charset> | COLLATE [=] <charset>}",
    "ROW_FORMAT [=] {DEFAULT | FIXED | DYNAMIC | COMPRESSED | REDUNDANT | COMPACT | PAGE}",
    "INSERT_METHOD [=] {NO | FIRST | LAST}",
    "TABLESPACE [=] <word>",
    "STORAGE {DISK | MEMORY}",
    "AUTOEXTEND_SIZE [=] <size>",
    "SECONDARY_ENGINE [=] <value>",
    "<engine option> [=] <value>",
))  # fmt: skip
OPTIONS = Forms(OPTION_FORMS)
# The options of CREATE TABLE alone. SEQUENCE=1 of MariaDB makes a sequence.
CREATE_OPTION_FORMS = tuple(Form(text, SLOTS) for text in (
    "START TRANSACTION",
    "WITH SYSTEM VERSIONING",
    "SEQUENCE [=] <number>",
))  # fmt: skip
CREATE_OPTIONS = Forms((*OPTION_FORMS, *CREATE_OPTION_FORMS))


def table_charset(option: Found) -> TableCharsetClause | None:
    """Return the character set or collation of a table option; None for every other option."""
    name = option.first("charset")
    if name is None:
        return None
    is_collation = ("COLLATE",) in option.words
    return TableCharsetClause(collation=name) if is_collation else TableCharsetClause(name)


def is_rowless(engine: str) -> bool:
    """True unless the engine, in upper case, certainly stores all rows that are written to its tables."""
    return engine not in _STORING
