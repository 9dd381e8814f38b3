"""Strategies that generate the values to store, as SQL literals: extreme, zero, empty and random values.

Statements run with INSERT IGNORE and without strict mode, so the server clips, cuts or replaces a value that a
column cannot hold. The expected value is always what SELECT returns.
"""

from __future__ import annotations

import datetime as dt
import json
import struct
from collections.abc import Sequence

from hypothesis import strategies as st

Literals = st.SearchStrategy[str]


def mixed(special: Sequence[str], random: Literals) -> Literals:
    """Draws special values and random values about equally often."""
    return st.one_of(st.sampled_from(list(special)), random)


def hexadecimal(raw: bytes) -> str:
    return f"0x{raw.hex()}" if raw else "''"


def integers(bits: int, *, unsigned: bool) -> Literals:
    low, high = (0, 2**bits - 1) if unsigned else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    return mixed(
        [str(n) for n in (low, low + 1, -1, 0, 1, high - 1, high)],
        st.integers(low, high).map(str),
    )


@st.composite
def decimals(draw: st.DrawFn, precision: int, scale: int) -> str:
    whole = draw(
        st.one_of(st.just(precision - scale), st.just(0), st.integers(0, precision - scale))
    )
    digits = st.text("0123456789", min_size=1)
    nines = draw(st.sampled_from("019x"))
    left = nines * whole if nines != "x" else draw(digits)[:whole]
    right = nines * scale if nines != "x" else draw(digits)[:scale]
    return draw(st.sampled_from(("", "-"))) + (left or "0") + (f".{right}" if right else "")


def doubles() -> Literals:
    return mixed(
        ["0", "-0e0", "1.7976931348623157e308", "-1.7976931348623157e308", "2.2250738585072014e-308", "5e-324", "0.1"],
        st.floats(allow_nan=False, allow_infinity=False).map(repr),
    )  # fmt: skip


def floats() -> Literals:
    return mixed(
        ["0", "-0e0", "3.4028234e38", "-3.4028234e38", "1.17549435e-38", "1e-45", "0.1", "16777217"],
        st.floats(allow_nan=False, allow_infinity=False, width=32).map(repr),
    )  # fmt: skip


def bits(n: int) -> Literals:
    return mixed(["b'0'", "b'1'", f"b'{'1' * n}'"], st.integers(0, 2**n - 1).map(str))


def years() -> Literals:
    return mixed(["0", "1901", "2155", "1970"], st.integers(1901, 2155).map(str))


_ODD_DATES = ("0000-00-00", "2024-00-00", "2024-05-00", "0000-01-01", "0001-01-01", "9999-12-31", "1969-12-31",
              "1970-01-01", "2024-02-29", "2023-02-29", "2023-02-31", "1582-10-10")  # fmt: skip
_CLOCKS = (
    "00:00:00",
    "23:59:59",
    "23:59:59.999999",
    "00:00:00.000001",
    "12:00:00.5",
    "01:02:03.04",
)


def _dates() -> st.SearchStrategy[str]:
    return st.one_of(st.sampled_from(_ODD_DATES), st.dates().map(str))


def dates() -> Literals:
    return _dates().map(lambda date: f"'{date}'")


def datetimes() -> Literals:
    clocks = st.one_of(st.sampled_from(_CLOCKS), st.times().map(str))
    return st.tuples(_dates(), clocks).map(lambda parts: f"'{parts[0]} {parts[1]}'")


def timestamps() -> Literals:
    random = st.datetimes(dt.datetime(1970, 1, 2), dt.datetime(2038, 1, 18)).map(  # noqa: DTZ001
        lambda moment: f"'{moment}'"
    )
    return mixed(
        ["'1970-01-01 00:00:01'", "'2038-01-19 03:14:07'", "'2038-01-19 03:14:07.999999'", "0", "'2038-01-19 03:14:08'",
         "'2106-02-07 06:28:15.999999'", "'2024-02-29 23:59:59.999999'"],
        random,
    )  # fmt: skip


def times() -> Literals:
    def shown(micros: int) -> str:
        seconds, rest = divmod(abs(micros), 1_000_000)
        sign = "-" if micros < 0 else ""
        return f"'{sign}{seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02}.{rest:06}'"

    most = 3_020_399_000_000
    return mixed(
        ["'838:59:59'", "'-838:59:59'", "'0'", "'-00:00:00.000001'", "'-00:00:00.999999'", "'-00:00:01'",
         "'-01:00:00.500000'", "'00:00:00.01'", "'-00:00:00.1'"],
        st.integers(-most, most).map(shown),
    )  # fmt: skip


# Letters that many, few or only one of the character sets have; control characters, trailing spaces, quotes.
_LETTERS = (
    "abz AZ09'\"\\`%_;-\t\n\r\x00\x1a\x7f\x80\x9f\u00a0éäöüßÿœ€žŁĞışęąļяжЫЮїґΩαωÅאבتسุกพԱაბ中文漢字語かなカナｶﾅ한글"
    "\uff0c。①纊犾―\uff5e∥\uff0d￠￡￢¥‾〜‖\u2212丂亐㐂𠀀😀𝄞🇩\u200d\u0301\ufeff\ue000\uf8f0\U0010ffff\U0002f800"
)


def texts(length: int = 40) -> Literals:
    """Unicode texts, which the server converts to the column's character set: some long, many with trailing spaces."""
    alphabets = st.one_of(
        st.text(st.sampled_from(_LETTERS), max_size=length),
        st.text(st.characters(codec="utf-8"), max_size=length),
        st.text("a ", max_size=4),
    )
    short = alphabets.map(lambda text: f"_utf8mb4 {hexadecimal(text.encode())}")
    long = st.tuples(short, st.sampled_from((100, 255, 256, 300, 20_000, 70_000))).map(
        lambda parts: f"REPEAT({parts[0]}, {parts[1]})"
    )
    return st.one_of(short, short, short, long, raw_texts())


def raw_texts() -> Literals:
    """Bytes in the column's character set. The server stores only the bytes before the first invalid byte."""
    pairs = st.tuples(st.integers(0x81, 0xFE), st.integers(0x30, 0xFE)).map(bytes)
    raw = st.one_of(st.binary(max_size=6), st.lists(pairs, max_size=8).map(b"".join))
    return raw.map(lambda raw: f"_binary {hexadecimal(raw)}")


def binaries() -> Literals:
    short = mixed(
        ["''", "0x00", "0x20", "0x0000", "0xff00"], st.binary(max_size=40).map(hexadecimal)
    )
    long = st.tuples(short, st.sampled_from((100, 255, 256, 20_000, 70_000))).map(
        lambda parts: f"REPEAT({parts[0]}, {parts[1]})"
    )
    return st.one_of(short, short, short, long)


def members(labels: int, *, many: bool) -> Literals:
    """Members of an ENUM or SET, by number. The number 0 is the invalid value of an ENUM, or the empty SET."""
    if not many:
        return mixed(["0", "1", str(labels)], st.integers(0, labels).map(str))
    return mixed(["0", str(2**labels - 1)], st.integers(0, 2**labels - 1).map(str))


# -- JSON -------------------------------------------------------------------------------------------------------


def _string(text: str) -> str:
    return f"_utf8mb4 {hexadecimal(text.encode())}"


_JSON_SCALARS = (
    "NULL", "CAST('true' AS JSON)", "CAST('false' AS JSON)", "0", "-1", "32767", "32768", "-32768", "-32769",
    "2147483647", "2147483648", "-2147483649", "9223372036854775807", "18446744073709551615", "1e0", "-0e0",
    "1e300", "0.1e0", "1.5", "CAST('-0.000' AS DECIMAL(10,3))", "99999999999999999999999999999999999.5",
    "DATE'2024-02-29'", "CAST('0000-00-00' AS DATE)", "TIMESTAMP'2024-02-29 12:34:56.789012'",
    "TIME'-838:59:59'", "TIME'12:00:00.000001'", "TIMESTAMP'9999-12-31 23:59:59'", "_binary 0x00ff10",
    "_binary ''", "CAST(2024 AS YEAR)", "JSON_ARRAY()", "JSON_OBJECT()", "ST_GeomFromText('POINT(1 2.5)')",
    "REPEAT('k', 127)", "REPEAT('k', 128)", "REPEAT('k', 17000)",
)  # fmt: skip
_JSON_LEAVES: Literals = st.one_of(
    st.sampled_from(_JSON_SCALARS),
    st.integers(-(2**63), 2**63 - 1).map(str),
    st.floats(allow_nan=False, allow_infinity=False).map(lambda n: f"CAST({n!r} AS DOUBLE)"),
    decimals(30, 10).map(lambda n: f"CAST({n} AS DECIMAL(65,12))"),
    st.text(st.characters(codec="utf-8"), max_size=10).map(_string),
    st.text(st.sampled_from(_LETTERS), max_size=10).map(_string),
    times().map(lambda time: f"CAST({time} AS TIME(6))"),
)  # fmt: skip
_KEYS = st.text(st.sampled_from('abcé"\\ \n😀$.'), max_size=3).map(_string)


def _json_inner(inner: Literals) -> Literals:
    arrays = st.lists(inner, max_size=4).map(lambda items: f"JSON_ARRAY({', '.join(items)})")
    pairs = st.lists(st.tuples(_KEYS, inner), max_size=4)
    objects = pairs.map(
        lambda items: f"JSON_OBJECT({', '.join(f'{key}, {value}' for key, value in items)})"
    )
    return st.one_of(arrays, objects)


def json_values() -> Literals:
    """JSON documents that the server's functions make, so that they contain all scalar types of the server. Some exceed
    64 KiB."""
    made = st.recursive(_JSON_LEAVES, _json_inner, max_leaves=8)
    large = made.map(lambda value: f"JSON_ARRAY({value}, REPEAT('x', 70000), {value})")
    texts = st.recursive(
        st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.text()),
        lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=3), inner, max_size=3)),
        max_leaves=6,
    )  # fmt: skip
    written = texts.map(lambda value: _string(json.dumps(value)))
    scalars = _JSON_LEAVES.map(lambda leaf: f"JSON_EXTRACT(JSON_ARRAY({leaf}), '$[0]')")
    return st.one_of(st.one_of(_json_inner(made), scalars), written, large)


def json_changes() -> Literals:
    """SQL expressions that change a JSON document in place. {} stands for the column."""
    paths = st.sampled_from(("$.a", "$[0]", "$[1]", "$.b.a", "$[last]", '$."é"', "$"))
    values = _JSON_LEAVES
    some = [
        st.tuples(paths, values).map(lambda p: f"JSON_SET({{}}, '{p[0]}', {p[1]})"),
        st.tuples(paths, values).map(lambda p: f"JSON_REPLACE({{}}, '{p[0]}', {p[1]})"),
        st.tuples(paths, values).map(lambda p: f"JSON_INSERT({{}}, '{p[0]}', {p[1]})"),
        st.tuples(paths, paths, values).map(
            lambda p: f"JSON_SET({{}}, '{p[0]}', {p[2]}, '{p[1]}', {p[2]})"
        ),
        st.sampled_from(("$.a", "$[0]", "$[1]", "$.b.a")).map(
            lambda path: f"JSON_REMOVE({{}}, '{path}')"
        ),
    ]
    return st.one_of(some)


# -- GEOMETRY, VECTOR, addresses ---------------------------------------------------------------------------------

_NUMBERS = st.one_of(
    st.integers(-80, 80).map(str),
    st.floats(-80, 80, allow_nan=False, width=32).map(lambda n: f"{n:.6f}"),
)
_POINT = st.tuples(_NUMBERS, _NUMBERS).map(" ".join)
_LINE = st.lists(_POINT, min_size=2, max_size=5, unique=True).map(", ".join)
_RING = st.integers(1, 20).map(lambda n: f"0 0, {n} 0, {n} {n}, 0 {n}, 0 0")
_SHAPES: dict[str, Literals] = {
    "POINT": _POINT.map(lambda p: f"POINT({p})"),
    "LINESTRING": _LINE.map(lambda p: f"LINESTRING({p})"),
    "POLYGON": _RING.map(lambda p: f"POLYGON(({p}))"),
    "MULTIPOINT": st.lists(_POINT, min_size=1, max_size=4).map(
        lambda p: f"MULTIPOINT({', '.join(p)})"
    ),
    "MULTILINESTRING": st.lists(_LINE, min_size=1, max_size=3).map(
        lambda p: f"MULTILINESTRING({', '.join(f'({line})' for line in p)})"
    ),
    "MULTIPOLYGON": _RING.map(lambda p: f"MULTIPOLYGON((({p})))"),
    "GEOMETRYCOLLECTION": st.tuples(_POINT, _LINE).map(
        lambda p: f"GEOMETRYCOLLECTION(POINT({p[0]}), LINESTRING({p[1]}))"
    ),
}  # fmt: skip
GEOMETRIES = ("GEOMETRY", *_SHAPES)


def geometries(kind: str) -> Literals:
    shapes = st.one_of(list(_SHAPES.values())) if kind == "GEOMETRY" else _SHAPES[kind]
    return st.tuples(shapes, st.sampled_from((0, 0, 4326, 3857))).map(
        lambda parts: f"ST_GeomFromText('{parts[0]}', {parts[1]})"
    )


def vectors(length: int, *, exact: bool) -> Literals:
    number = st.floats(allow_nan=False, allow_infinity=False, width=32)
    return st.lists(number, min_size=length if exact else 1, max_size=length).map(
        lambda numbers: hexadecimal(struct.pack(f"<{len(numbers)}f", *numbers))
    )


def uuids() -> Literals:
    return mixed(
        ["'00000000-0000-0000-0000-000000000000'", "'ffffffff-ffff-ffff-ffff-ffffffffffff'"],
        st.uuids().map(lambda value: f"'{value}'"),
    )


def addresses6() -> Literals:
    return mixed(
        ["'::'", "'::1'", "'::ffff:1.2.3.4'", "'fe80::1'"],
        st.ip_addresses(v=6).map(lambda address: f"'{address}'"),
    )


def addresses4() -> Literals:
    return mixed(
        ["'0.0.0.0'", "'255.255.255.255'"], st.ip_addresses(v=4).map(lambda address: f"'{address}'")
    )
