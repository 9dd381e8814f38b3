"""The column types of each kind of server: their declarations, the values to store, and the SELECT that reads the
values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from hypothesis import strategies as st
from hypothesis.vendor.pretty import RepresentationPrinter

from tests.differential import literals
from tests.differential.literals import Literals
from tests.servers import Server

_SMALL_KEY_CHARACTERS = 40  # of a key column; with four bytes each, they fit into a key


@dataclass(frozen=True, slots=True)
class Declared:
    """`sql`: the type as in CREATE TABLE; `reading`: see `readings`; `keyed`: True if a key may contain such a column;
    `changes`: SQL expressions that change the column's value, with {} for the column's name."""

    sql: str
    reading: str
    literals: Literals
    keyed: bool = False
    changes: Literals | None = None
    large: bool = False  # True for a type that binlog_row_image=NOBLOB may omit, as a BLOB


@dataclass(frozen=True, slots=True)
class Features:
    """The features of a server on which tables depend."""

    kind: str
    collations: Mapping[str, Sequence[str]] = field(repr=False)  # per character set
    generated: bool
    invisible: str  # the clause for an invisible column; "" if the server has none
    generated_left_out: bool = False  # True: images lack them, as in MariaDB 11.8.9
    old_temporals: bool = (
        False  # True: the server stores TIME, DATETIME and TIMESTAMP in the format from before 5.6
    )

    def _repr_pretty_(self, printer: RepresentationPrinter, _: bool) -> None:
        """Keeps the text short, because Hypothesis shows the arguments of a strategy when it rejects an example, and
        warns if they are long."""
        printer.text(repr(self))

    @property
    def mariadb(self) -> bool:
        return self.kind.startswith("mariadb")


def features(server: Server) -> Features:
    source = (
        "SELECT CHARACTER_SET_NAME, FULL_COLLATION_NAME FROM information_schema.COLLATION_CHARACTER_SET_APPLICABILITY"
        if server.mariadb
        else "SELECT CHARACTER_SET_NAME, COLLATION_NAME FROM information_schema.COLLATIONS"
    )
    collations: dict[str, list[str]] = {}
    for charset, collation in sorted(server.execute(source)):
        if charset != "binary":
            collations.setdefault(charset, []).append(collation)
    invisible = "" if server.kind == "mysql56" else "INVISIBLE"
    left_out = server.kind == "mariadb118"
    return Features(server.kind, collations, server.kind != "mysql56", invisible, left_out)


Kinds = dict[str, st.SearchStrategy[Declared]]


def kinds(features: Features) -> Kinds:
    """Returns strategies that generate declarations, by the readable name of the kind."""
    by_name: Kinds = {**_numbers(), **_temporals(features), **_texts(features), **_bytes()}
    by_name["geometry"] = st.sampled_from(
        [
            Declared(kind, "geometry", literals.geometries(kind), large=True)
            for kind in literals.GEOMETRIES
        ]
    )
    if features.kind == "mysql97":
        by_name["json"] = st.just(
            Declared(
                "JSON", "text", literals.json_values(), changes=literals.json_changes(), large=True
            )
        )
        by_name["vector"] = st.sampled_from((1, 3, 16, 2048)).map(
            lambda n: Declared(
                f"VECTOR({n})", "vector", literals.vectors(min(n, 16), exact=False), large=True
            )
        )
    if features.mariadb:
        by_name |= _mariadb(features)
    return by_name  # fmt: skip


def _numbers() -> Kinds:
    by_name: Kinds = {}
    for name, bits in (
        ("TINYINT", 8),
        ("SMALLINT", 16),
        ("MEDIUMINT", 24),
        ("INT", 32),
        ("BIGINT", 64),
    ):
        reading = "bigint unsigned" if bits == 64 else "integer"
        signed = Declared(name, "integer", literals.integers(bits, unsigned=False), keyed=True)
        unsigned, filled = (
            Declared(f"{name} {more}", reading, literals.integers(bits, unsigned=True), keyed=True)
            for more in ("UNSIGNED", "ZEROFILL")
        )
        by_name[name.lower()] = st.sampled_from((signed, unsigned, filled))
    by_name["bool"] = st.just(Declared("BOOL", "integer", literals.integers(8, unsigned=False)))
    by_name["year"] = st.just(Declared("YEAR", "integer", literals.years(), keyed=True))
    by_name["decimal"] = _decimals()
    by_name["float"] = st.sampled_from(
        [
            Declared(sql, "float", literals.floats())
            for sql in ("FLOAT", "FLOAT UNSIGNED", "FLOAT(7,3)", "FLOAT ZEROFILL")
        ]
    )
    by_name["double"] = st.sampled_from(
        [
            Declared(sql, "float", literals.doubles())
            for sql in ("DOUBLE", "DOUBLE UNSIGNED", "DOUBLE(20,5)", "FLOAT(53)")
        ]
    )
    by_name["bit"] = st.one_of(st.sampled_from((1, 7, 8, 9, 64)), st.integers(1, 64)).map(
        lambda n: Declared(f"BIT({n})", "bytes", literals.bits(n))
    )
    return by_name  # fmt: skip


@st.composite
def _decimals(draw: st.DrawFn) -> Declared:
    precision = draw(st.one_of(st.sampled_from((1, 5, 9, 10, 18, 38, 39, 65)), st.integers(1, 65)))
    most = min(30, precision)
    scale = draw(st.one_of(st.sampled_from((0, most)), st.integers(0, most)))
    more = draw(st.sampled_from(("", "", " UNSIGNED", " ZEROFILL")))
    reading = "decimal" if precision <= 38 else "decimal text"
    values = literals.decimals(precision, scale)
    return Declared(f"DECIMAL({precision},{scale}){more}", reading, values, keyed=True)


def _temporals(features: Features) -> Kinds:
    fractions: st.SearchStrategy[int] = st.just(0) if features.old_temporals else st.integers(0, 6)

    def kind(name: str, reading: str, values: Literals) -> st.SearchStrategy[Declared]:
        null = " NULL" if name == "TIMESTAMP" else ""
        return fractions.map(
            lambda n: Declared(f"{name}({n}){null}" if n else f"{name}{null}", reading, values, keyed=not null)
        )  # fmt: skip

    return {
        "date": st.just(Declared("DATE", "date", literals.dates(), keyed=True)),
        "datetime": kind("DATETIME", "datetime", literals.datetimes()),
        "timestamp": kind("TIMESTAMP", "timestamp", literals.timestamps()),
        "time": kind("TIME", "time", literals.times()),
    }


_TEXT_TYPES = ("TINYTEXT", "TEXT", "MEDIUMTEXT", "LONGTEXT")
# These common character sets are drawn more often than all others.
_OFTEN = ("utf8mb4", "latin1", "gbk", "sjis", "utf16", "gb18030", "ujis", "ucs2")


@st.composite
def _charsets(draw: st.DrawFn, features: Features) -> str:
    """Draws a clause `CHARACTER SET … COLLATE …`."""
    often = [name for name in _OFTEN if name in features.collations]
    charset = draw(st.one_of(st.sampled_from(often), st.sampled_from(list(features.collations))))
    collation = draw(st.sampled_from(list(features.collations[charset])))
    return f"CHARACTER SET {charset} COLLATE {collation}"


def _texts(features: Features) -> Kinds:
    charsets = _charsets(features)

    def sized(name: str, most: int) -> st.SearchStrategy[Declared]:
        lengths = st.one_of(st.sampled_from((1, 10, most)), st.integers(1, most))
        return st.tuples(lengths, charsets).map(
            lambda drawn: Declared(
                f"{name}({drawn[0]}) {drawn[1]}",
                "text",
                literals.texts(min(drawn[0], 40)),
                keyed=drawn[0] <= _SMALL_KEY_CHARACTERS,
            )
        )

    return {
        "char": sized("CHAR", 255),
        "varchar": sized("VARCHAR", 400),
        "text": st.tuples(st.sampled_from(_TEXT_TYPES), charsets).map(
            lambda drawn: Declared(" ".join(drawn), "text", literals.texts(), large=True)
        ),
        "enum": _labelled("ENUM", charsets, (1, 3, 255, 256, 300)),
        "set": _labelled("SET", charsets, (1, 3, 8, 9, 24, 33, 64)),
    }


@st.composite
def _labelled(
    draw: st.DrawFn, name: str, charsets: st.SearchStrategy[str], counts: Sequence[int]
) -> Declared:
    n = draw(st.sampled_from(counts))
    letters = st.sampled_from("aé €жк中語かｶ한'\\\"`-")
    # The number makes labels differ in every collation, also if letters that the character set lacks become question
    # marks.
    odd = draw(st.lists(st.text(letters, max_size=4), min_size=min(n, 3), max_size=min(n, 3)))
    labels = [f"{odd[i] if i < len(odd) else 'v'}{i}" for i in range(n)]
    quoted = ", ".join(
        "'" + label.replace("\\", "\\\\").replace("'", "''") + "'" for label in labels
    )
    sql = f"{name}({quoted}) {draw(charsets)}"
    return Declared(sql, "text", literals.members(n, many=name == "SET"), keyed=False)


def _bytes() -> Kinds:
    def sized(name: str, most: int) -> st.SearchStrategy[Declared]:
        lengths = st.one_of(st.sampled_from((1, 4, 16, most)), st.integers(1, most))
        return lengths.map(
            lambda n: Declared(f"{name}({n})", "bytes", literals.binaries(), keyed=n <= 100)
        )

    blobs = [
        Declared(name, "bytes", literals.binaries(), large=True)
        for name in ("TINYBLOB", "BLOB", "MEDIUMBLOB", "LONGBLOB")
    ]
    return {
        "binary": sized("BINARY", 255),
        "varbinary": sized("VARBINARY", 600),
        "blob": st.sampled_from(blobs),
    }


def _mariadb(features: Features) -> Kinds:
    compressed = st.sampled_from(
        [
            Declared("BLOB COMPRESSED", "bytes", literals.binaries(), large=True),
            Declared("VARBINARY(900) COMPRESSED", "bytes", literals.binaries()),
            Declared("TEXT COMPRESSED CHARACTER SET utf8mb4", "text", literals.texts(), large=True),
            Declared("LONGTEXT COMPRESSED CHARACTER SET latin1", "text", literals.texts(), large=True),
            Declared("VARCHAR(200) COMPRESSED CHARACTER SET utf8mb4", "text", literals.texts()),
            Declared("VARCHAR(60) COMPRESSED CHARACTER SET ucs2", "text", literals.texts()),
        ]
    )  # fmt: skip
    by_name: Kinds = {
        "compressed": compressed,
        "json": st.just(
            Declared(
                "JSON", "text", st.sampled_from(("'{}'", "'[1, 2.50]'", "'\"é\"'")), large=True
            )
        ),
        "uuid": st.just(Declared("UUID", "uuid", literals.uuids(), keyed=True)),
        "inet6": st.just(Declared("INET6", "inet6", literals.addresses6(), keyed=True)),
        "inet4": st.just(Declared("INET4", "inet4", literals.addresses4(), keyed=True)),
    }
    if features.kind == "mariadb118":
        by_name["vector"] = st.sampled_from((1, 3, 16)).map(
            lambda n: Declared(f"VECTOR({n})", "bytes", literals.vectors(n, exact=True))
        )
    return by_name
