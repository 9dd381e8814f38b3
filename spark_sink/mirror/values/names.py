"""Converts names of databases, tables and columns to folder names of the target and to identifiers of Spark SQL.
Pure."""

from __future__ import annotations

from fnmatch import fnmatchcase

TableName = tuple[str, str]  # database, table

# The folder of the target with the mirror's own files. No database's folder can have this name, because `folder_name`
# escapes a leading underscore. Spark and Delta treat a folder whose name begins with an underscore as hidden.
OWN_FOLDER = "_binlog"

# RFC 3986 "Unreserved Characters", except the dot, because a folder cannot have the name "." or "..", and except the
# tilde, because it begins an escape.
_PLAIN = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_")


def folder_name(name: str) -> str:
    """Returns the folder name for a database's or table's name. Different names have different folders.

    The folder name consists of ASCII letters, digits, `-`, `_` and `~`, which readers neither encode nor decode when
    they make a URI of the path. Any other ASCII character, and an underscore at the beginning, becomes `~` and two
    hexadecimal digits: `a.b` is `a~2eb`. A name with other characters is `~p` and its Punycode (RFC 3492): `größe` is
    `~pgre-6ka8i`. So a name of 64 characters fits into the 255 bytes that file systems allow.
    """
    text = "".join(c if c in _PLAIN or not c.isascii() else f"~{ord(c):02x}" for c in name)
    if text.startswith("_"):
        text = f"~5f{text[1:]}"
    return text if text.isascii() else f"~p{text.encode('punycode').decode('ascii')}"


def own_path(target: str, *parts: str) -> str:
    """Returns a path in the mirror's own folder of the target."""
    return "/".join((target.rstrip("/"), OWN_FOLDER, *parts))


def copy_folder(table_id: str) -> str:
    """Returns the folder of a table's copy, below the target."""
    return f"{OWN_FOLDER}/copies/{table_id}"


def aside_folder(table_id: str) -> str:
    """Returns the folder, below the target, to which the mirror moves a table's folder aside until the table's place is
    free."""
    return f"{OWN_FOLDER}/moving/{table_id}"


def quoted(name: str) -> str:
    """Returns the name as an identifier of Spark SQL."""
    return "`" + name.replace("`", "``") + "`"


def table_label(name: TableName) -> str:
    """Returns the name as `database.table`, for messages."""
    return ".".join(name)


def fits_pattern(label: str, pattern: str) -> bool:
    """True if a table's name is equal to the pattern or fits the pattern. Equality is tested first, because a name may
    contain the special characters of patterns."""
    return label == pattern or fnmatchcase(label, pattern)
