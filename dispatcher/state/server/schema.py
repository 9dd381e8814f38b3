"""The tables of a state store in a database.

The database has the same tables as the file (`dispatcher/state/schema.py`), with the same version. It also has `lease`
and `leader_settings`, tables of one row, and `prepared_part`, which contains the rows of prepared transactions in
parts, because a server limits the size of a packet.

A DDL statement commits implicitly, so a crash may interrupt the creation between two statements. Therefore all
statements can be repeated. The first daemon that starts creates the tables. If two daemons start at the same time, one
waits for the other with GET_LOCK. A cluster may refuse this function; then both daemons create the same tables.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from uuid import uuid4

from dispatcher.model.errors import BinlogError
from dispatcher.mysql.error_map import number_of
from dispatcher.mysql.server_facts import is_mariadb, version_numbers
from dispatcher.state.schema import SCHEMA_VERSION
from dispatcher.state.server.session import DatabaseSession, is_lost
from dispatcher.state.statements import Statements

PROGRAM = "binlog-dispatcher"
_LIKE = "ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"
# Statements compare the names in these columns, so the columns are VARBINARY: every collation that all servers support
# ignores spaces at the end of a text.
_INSTALLATION = """
CREATE TABLE IF NOT EXISTS installation (
  place    TINYINT NOT NULL PRIMARY KEY,   -- 1: there is one row
  program  VARCHAR(32) NOT NULL,
  version  INT NOT NULL,
  moved_to TEXT NOT NULL,                  -- the store that has replaced this one, or ''
  id       CHAR(36) NOT NULL,
  epoch    BIGINT NOT NULL
)
"""
_FIRST_ROW = """
INSERT IGNORE INTO installation VALUES (1, ?, 0, '', ?, UNIX_TIMESTAMP())
"""
TABLES = (
    """
CREATE TABLE IF NOT EXISTS lease (
  place   TINYINT NOT NULL PRIMARY KEY,    -- 1: there is one row
  holder  VARCHAR(64) NOT NULL,
  address TEXT NOT NULL,
  term    BIGINT NOT NULL,
  expires DATETIME(6) NOT NULL,            -- UTC
  writes  BIGINT NOT NULL                  -- how often the store was written
)
""",
    "INSERT IGNORE INTO lease VALUES (1, '', '', 0, NOW(6), 0)",
    """
CREATE TABLE IF NOT EXISTS leader_settings (
  place   TINYINT NOT NULL PRIMARY KEY,    -- 1: there is at most one row
  term    BIGINT NOT NULL,                 -- of the leader that has stored it
  digests LONGTEXT NOT NULL                -- JSON: digests of its settings
)
""",
    """
CREATE TABLE IF NOT EXISTS consumer (
  name         VARBINARY(1024) NOT NULL PRIMARY KEY,
  session      BIGINT NOT NULL DEFAULT 0,
  acknowledged LONGTEXT,                   -- positions as JSON, NULL until the first save
  covered      LONGTEXT,
  file_created BIGINT NOT NULL DEFAULT 0,
  paused       TINYINT NOT NULL DEFAULT 0
)
""",
    """
CREATE TABLE IF NOT EXISTS stream (
  client   VARBINARY(2048) NOT NULL PRIMARY KEY,
  server   VARCHAR(64) NOT NULL,
  file     TEXT NOT NULL,
  "offset" BIGINT NOT NULL,
  created  BIGINT NOT NULL
)
""",
    """
CREATE TABLE IF NOT EXISTS table_version (
  rowid         BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
  client        VARBINARY(2048) NOT NULL,
  database_name TEXT NOT NULL,
  table_name    TEXT NOT NULL,
  start_file    TEXT NOT NULL,
  start_offset  BIGINT NOT NULL,
  start_created BIGINT NOT NULL,
  end_file      TEXT NOT NULL,
  end_offset    BIGINT NOT NULL,
  end_created   BIGINT NOT NULL,
  open          TINYINT NOT NULL,
  definition    LONGTEXT NOT NULL,
  KEY table_version_of (client)
)
""",
    """
CREATE TABLE IF NOT EXISTS prepared (
  client      VARBINARY(2048) NOT NULL,
  number      BIGINT NOT NULL,
  xid         TEXT NOT NULL,
  server      VARCHAR(64) NOT NULL,
  file        TEXT NOT NULL,
  "offset"    BIGINT NOT NULL,
  created     BIGINT NOT NULL,
  source      TEXT NOT NULL,
  gno         BIGINT NOT NULL,
  ended       LONGTEXT,
  flaws       LONGTEXT NOT NULL,
  compression INT,
  size        BIGINT,
  "rows"      BINARY(16),                  -- prepared_part.id
  PRIMARY KEY (client, number),
  KEY prepared_rows ("rows")
)
""",
    """
CREATE TABLE IF NOT EXISTS prepared_part (
  id   BINARY(16) NOT NULL,
  part INT NOT NULL,                       -- counts from 0
  data LONGBLOB NOT NULL,
  PRIMARY KEY (id, part)
)
""",
    """
CREATE TABLE IF NOT EXISTS declaration (
  name        VARBINARY(1024) NOT NULL PRIMARY KEY,
  owner       TEXT NOT NULL,               -- the name of the token
  content     LONGTEXT NOT NULL,           -- JSON
  declared_at BIGINT NOT NULL,             -- seconds since 1970
  read_at     BIGINT NOT NULL
)
""",
)
_OTHER_DATABASE = "create another database and name it in state.mysql"
_LOCK_WAIT_S = 20


def create_tables(session: DatabaseSession) -> None:
    """Create the tables if there are none.

    Raises BinlogError (STATE_STORE) for a database of another program, tables of another version, a state that was
    moved to another store, and a server that is too old.
    """
    if _version(session) == 0:
        with _lock(session):
            _create(session)


def _version(session: DatabaseSession) -> int:
    """The version of the tables; 0 if there are none yet. Raises BinlogError as `create_tables` does."""
    refuse_old(session)
    installed = installed_of(session)
    if installed is None:
        return 0
    refuse_unusable(session, *installed)
    return installed[0]


def refuse_unusable(session: DatabaseSession, version: int, moved_to: str) -> None:
    """Raises BinlogError (STATE_STORE) for a state that was moved to another store, and for another version."""
    if moved_to:
        what = f"the state was moved to {moved_to}"
        remedy = f"name that store in the settings (state), or {_OTHER_DATABASE}"
        raise session.error(what, remedy)
    if version != SCHEMA_VERSION:
        what = f"the database has schema {version}; this version of binlog-dispatcher supports {SCHEMA_VERSION}"
        remedy = f"run the binlog-dispatcher that wrote it, or {_OTHER_DATABASE}"
        raise session.error(what, remedy)


def readable(session: DatabaseSession) -> None:
    """Raises BinlogError (STATE_STORE) unless the database holds a state of this version."""
    if _version(session) == 0:
        raise session.error("the database holds no state yet", "start a daemon with these settings")


def refuse_old(session: DatabaseSession) -> None:
    version = session.run(lambda db: str(db.execute("SELECT VERSION()").fetchone()[0]))
    oldest = (10, 5) if is_mariadb(version) else (5, 7)
    if version_numbers(version) < oldest:
        what = f"the server {version} is too old for the state"
        raise session.error(what, "use MySQL 5.7 or newer, or MariaDB 10.5 or newer")


def installed_of(session: DatabaseSession) -> tuple[int, str] | None:
    """Returns (version of the tables, store to which the state was moved); None if there are no tables, or if their
    creation was interrupted.

    Raises BinlogError (STATE_STORE) for a database of another program.
    """
    tables = session.run(lambda db: {str(name) for (name,) in db.execute("SHOW TABLES")})
    if not tables:
        return None
    row = _installation_row(session) if "installation" in tables else ("", 0, "")
    if row is None:
        return None
    program, version, moved_to = row
    if program != PROGRAM:
        raise session.error("the database holds tables of another program", _OTHER_DATABASE)
    return (version, moved_to) if version else None


def _installation_row(session: DatabaseSession) -> tuple[str, int, str] | None:
    def row(db: Statements) -> tuple[str, int, str] | None:
        found: tuple[str, int, str] | None = db.execute(
            "SELECT program, version, moved_to FROM installation"
        ).fetchone()
        return found

    try:
        return session.run(row)
    except BinlogError as error:
        if number_of(error) != 1054:  # unknown column: another program's table of this name
            raise
        return "", 0, ""


def _create(session: DatabaseSession) -> None:
    if installed_of(session) is not None:  # another daemon has created the tables meanwhile
        return
    _run(session, _INSTALLATION)
    _run(session, _FIRST_ROW, PROGRAM, str(uuid4()))
    for statement in TABLES:
        _run(session, statement)
    # Other daemons use the tables as soon as they read the version, so it is stored last.
    _run(session, "UPDATE installation SET version = ?", SCHEMA_VERSION)


def _run(session: DatabaseSession, statement: str, *values: object) -> None:
    if "CREATE TABLE" in statement:
        statement = f"{statement.rstrip()} {_LIKE}"
    session.run(lambda db: db.execute(statement, values))


@contextlib.contextmanager
def _lock(session: DatabaseSession) -> Iterator[None]:
    name = f"binlog-dispatcher:{session.database}"[:64]
    try:
        got = session.run(lambda db: db.execute("SELECT GET_LOCK(?, ?)", (name, _LOCK_WAIT_S)))
        held = got.fetchone()[0] == 1
    except BinlogError as error:
        if is_lost(error):
            raise
        held = True  # a cluster refuses the lock
    if not held:
        remedy = "look at SHOW PROCESSLIST on the database's server"
        raise session.error("another session is changing the tables of the state", remedy)
    try:
        yield
    finally:
        with contextlib.suppress(BinlogError):
            session.run(lambda db: db.execute("SELECT RELEASE_LOCK(?)", (name,)))
