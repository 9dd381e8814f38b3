"""Statements as text.

A statement's text is in the session's character set, which the event names in its status variables; so is `sql_mode`,
without which double quotes cannot be read. The variables are written in one order (sql/log_event.cc,
Query_log_event::write), and those needed come first, so that the walk ends before the first of unknown size.
"""

from __future__ import annotations

from dispatcher.binlog.charsets import charset_of, python_text
from dispatcher.binlog.events import malformed, parse_query

_CODECS = {
    "gbk": "gbk", "gb2312": "gb2312", "gb18030": "gb18030", "big5": "big5", "sjis": "shift_jis", "cp932": "cp932",
    "ujis": "euc_jp", "euckr": "euc_kr", "latin2": "iso8859-2", "latin5": "iso8859-9", "latin7": "iso8859-13",
    "cp1250": "cp1250", "cp1251": "cp1251", "cp1256": "cp1256", "cp1257": "cp1257", "cp866": "cp866", "koi8r": "koi8-r",
    "koi8u": "koi8-u", "greek": "iso8859-7", "hebrew": "iso8859-8", "tis620": "tis-620",
}  # fmt: skip


def statement(body: bytes) -> tuple[str, str, int]:
    """(default database, text, sql_mode) of a QUERY_EVENT's body. Bytes that are not of the session's character set are
    replaced. Raises `BinlogError` MALFORMED_EVENT."""
    query = parse_query(body)
    sql_mode, collation = _session(body[13 : 13 + int.from_bytes(body[11:13], "little")])
    raw = query.query.encode("utf-8", "surrogateescape")
    return query.database, _text(raw, collation), sql_mode


def _session(status: bytes) -> tuple[int, int]:
    """(sql_mode, collation of the client's character set); 0 where the event does not say."""
    sql_mode = collation = at = 0
    while at < len(status):
        code, at = status[at], at + 1
        if code in (2, 6):  # Q_CATALOG ends in a zero byte, Q_CATALOG_NZ does not
            at += 1 + int.from_bytes(status[at : at + 1], "little") + (code == 2)
        elif code in (0, 1, 3, 4):
            size = {0: 4, 1: 8, 3: 4, 4: 6}[code]
            value = status[at : at + size]
            if len(value) < size:
                raise malformed("QUERY_EVENT", "has status variables that are cut short")
            if code == 1:
                sql_mode = int.from_bytes(value, "little")
            elif code == 4:
                collation = int.from_bytes(value[:2], "little")
            at += size
        else:
            break
    return sql_mode, collation


def _text(raw: bytes, collation: int) -> str:
    codec = _CODECS.get(charset_of(collation))
    if codec:
        return raw.decode(codec, "replace")
    try:
        text = python_text(raw, collation)
    except UnicodeDecodeError:
        text = None
    return raw.decode("utf-8", "replace") if text is None else text
