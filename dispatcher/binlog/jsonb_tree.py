"""Documents in MySQL's binary JSON, opened one container at a time: for changes that touch little of them.

A value that nobody looks into stays the bytes it was (`Raw`): everything in a container is relative to its beginning,
so its bytes mean the same wherever they stand. `opened` takes one container apart into a dict or a list of such values,
`encoded` puts one together as the server does: keys by length and then by bytes, the small form where its 16 bits are
enough, literals and small integers in their entries. So a change in a large document costs copies of bytes, not a
tree of its values. `jsonb` describes the format.

Source: sql-common/json_binary.cc (serialize_json_object, serialize_json_array, attempt_inline_value).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from dispatcher.binlog import jsonb_kernels as kernels

_WIDTHS = {
    kernels.LITERAL: 1,
    kernels.INT16: 2,
    kernels.UINT16: 2,
    kernels.INT32: 4,
    kernels.UINT32: 4,
    kernels.INT64: 8,
    kernels.UINT64: 8,
    kernels.DOUBLE: 8,
}
_GREATEST_KEY = 0xFFFF


class Raw(NamedTuple):
    """A value as bytes: its type, and what stands behind the type byte, no byte more."""

    kind: int
    data: bytes


Node = Raw | dict[bytes, "Node"] | list["Node"]

NULL = Raw(kernels.LITERAL, b"\0")


class Malformed(Exception):
    """The bytes are not binary JSON, or the result would not be."""


def document(value: bytes) -> Raw:
    """A document; an empty one is null, as for the server. Raises `Malformed`."""
    return _raw(value[0], value, 1, len(value)) if value else NULL


def is_container(node: Node) -> bool:
    return not isinstance(node, Raw) or node.kind <= kernels.GREATEST_CONTAINER


def opened(raw: Raw) -> dict[bytes, Node] | list[Node]:
    """The values of a container. Raises `Malformed`, also where values overlap, so that what is made of a document is
    never larger than it."""
    kind, data = raw
    large, is_object = kind & kernels.LARGE, not kind & kernels.ARRAY
    width = 4 if large else 2
    count = _integer(data, 0, width)
    entries = 2 * width + (count * (2 + width) if is_object else 0)
    head = entries + count * (1 + width)
    values: list[Node] = []
    used = head
    for at in range(entries, head, 1 + width):
        kind = data[at]
        if _inlined(kind, large):
            values.append(Raw(kind, data[at + 1 : at + 1 + _WIDTHS[kind]]))
            continue
        value = _raw(kind, data, _offset(data, at + 1, width, head), len(data))
        used += len(value.data)
        values.append(value)
    if not is_object:
        _no_more(used, data)
        return values
    keys = []
    for at in range(2 * width, entries, 2 + width):
        start, size = _offset(data, at, width, head), _integer(data, at + width, 2)
        if size > len(data) - start:
            raise Malformed("a key reaches past its end")
        used += size
        _no_more(used, data)
        keys.append(data[start : start + size])
    found = dict(zip(keys, values, strict=True))
    if len(found) < count:
        raise Malformed("a key stands in an object twice")
    return found


def encoded(node: Node) -> bytes:
    """The document. Raises `Malformed` where a key or the whole is too long for the format."""
    kind, data = _put_together(node)
    return bytes((kind,)) + data


def _no_more(used: int, data: bytes) -> None:
    if used > len(data):
        raise Malformed("values that overlap")


def _integer(data: bytes, at: int, width: int) -> int:
    return int.from_bytes(data[at : at + width], "little")


def _offset(data: bytes, at: int, width: int, head: int) -> int:
    offset = _integer(data, at, width)
    if not head <= offset <= len(data):
        raise Malformed("an offset that points outside of its container")
    return offset


def _inlined(kind: int, large: int) -> bool:
    return kernels.LITERAL <= kind <= (kernels.UINT32 if large else kernels.UINT16)


def _raw(kind: int, data: bytes, at: int, limit: int) -> Raw:
    """The value of type `kind` at `at`, which ends at `limit` at the latest."""
    if kind <= kernels.GREATEST_CONTAINER:
        width = 4 if kind & kernels.LARGE else 2
        if 2 * width > limit - at:
            raise Malformed("a container is cut short")
        count, size = _integer(data, at, width), _integer(data, at + width, width)
        head = 2 * width + count * (1 + width if kind & kernels.ARRAY else 3 + 2 * width)
        if head > size:
            raise Malformed("a container is smaller than its entries")
    elif kind in _WIDTHS:
        size = _WIDTHS[kind]
    elif kind in (kernels.STRING, kernels.OPAQUE):
        size = _length(data, at + (kind == kernels.OPAQUE), limit) - at
    else:
        raise Malformed(f"a value of the unknown type {kind}")
    if size > limit - at:
        raise Malformed("a value reaches past its end")
    return Raw(kind, data[at : at + size])


def _length(data: bytes, at: int, limit: int) -> int:
    """The offset behind a string, whose length stands at `at`, 7 bits a byte."""
    value = 0
    for k in range(min(5, limit - at)):
        byte = data[at + k]
        value |= (byte & 127) << 7 * k
        if byte < 128:
            return at + k + 1 + value
    raise Malformed("a length that is none")


def _put_together(node: Node) -> Raw:
    if isinstance(node, Raw):
        return node
    keys: list[bytes] = []
    if isinstance(node, dict):
        keys = sorted(node, key=lambda key: (len(key), key))
        if keys and len(keys[-1]) > _GREATEST_KEY:
            raise Malformed(f"a key of {len(keys[-1])} bytes")
        values = [_put_together(node[key]) for key in keys]
    else:
        values = [_put_together(value) for value in node]
    kind = kernels.OBJECT if isinstance(node, dict) else kernels.ARRAY
    for large in (0, kernels.LARGE):
        if (data := _container(keys, values, large)) is not None:
            return Raw(kind | large, data)
    raise Malformed("a document of more than 4 GiB")


def _container(keys: list[bytes], values: list[Raw], large: int) -> bytes | None:
    """None where offsets of this width do not reach far enough."""
    width = 4 if large else 2
    head = 2 * width + len(keys) * (2 + width) + len(values) * (1 + width)
    size = head + sum(map(len, keys))
    size += sum(len(value.data) for value in values if not _inlined(value.kind, large))
    if size >> 8 * width:
        return None
    out = bytearray(len(values).to_bytes(width, "little") + size.to_bytes(width, "little"))
    at = head
    for key in keys:
        out += at.to_bytes(width, "little") + len(key).to_bytes(2, "little")
        at += len(key)
    for value in values:
        out.append(value.kind)
        if _inlined(value.kind, large):
            out += _entry(value, width)
        else:
            out += at.to_bytes(width, "little")
            at += len(value.data)
    out += b"".join(keys)
    out += b"".join(_outside(values, large))
    return bytes(out)


def _entry(value: Raw, width: int) -> bytes:
    """A value in its entry: as an integer of `width` bytes, with its sign where it has one."""
    sign = value.kind in (kernels.INT16, kernels.INT32)
    number = int.from_bytes(value.data, "little", signed=sign)
    return number.to_bytes(width, "little", signed=sign)


def _outside(values: list[Raw], large: int) -> Iterable[bytes]:
    return (value.data for value in values if not _inlined(value.kind, large))
