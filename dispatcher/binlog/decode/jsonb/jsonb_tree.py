"""Changes values in documents of MySQL's binary JSON. Only the containers on the path to the change are parsed.

A value is a type and bytes (`Raw`). Offsets in a container are relative to its beginning, so its bytes do not depend on
its place in the document. A change rebuilds the containers around its location and copies all other bytes.

A container of few values is built as the server builds it: keys sorted by length and then by bytes, keys before values,
the small form if 16 bits are enough, literals and small integers in their entries. For a container of millions of
values, a tree of Python objects would take fifty times the bytes. So in a container of many values, this module changes
the tables of entries as arrays, and appends a new value after the other values. `jsonb` describes the format.

Source: sql-common/json_binary.cc (serialize_json_object, serialize_json_array, attempt_inline_value, lookup_index).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from dispatcher.binlog.decode.jsonb import jsonb_kernels as kernels
from dispatcher.binlog.kernel.bytes import I64

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
_LARGE_WIDTH = 4
_FEW = 64


class Raw(NamedTuple):
    """A value: its type, and exactly the bytes that follow the type byte."""

    kind: int
    data: bytes

    @property
    def is_object(self) -> bool:
        return self.kind | kernels.LARGE == kernels.OBJECT | kernels.LARGE

    @property
    def is_array(self) -> bool:
        return self.kind | kernels.LARGE == kernels.ARRAY | kernels.LARGE

    @property
    def width(self) -> int:
        """The size, in bytes, of each count and each offset in the container: 2, or 4 in the large format."""
        return _LARGE_WIDTH if self.kind & kernels.LARGE else 2

    @property
    def members(self) -> int:
        """The number of values in a container."""
        return _integer(self.data, 0, self.width)


NULL = Raw(kernels.LITERAL, b"\0")


class Malformed(Exception):
    """The bytes are not binary JSON, or the result would not be valid binary JSON."""


def document(value: bytes) -> Raw:
    """Parse a document. An empty document is null, as for the server. Raises `Malformed`."""
    return _raw(value[0], value, 1, len(value)) if value else NULL


def encoded(raw: Raw) -> bytes:
    return bytes((raw.kind,)) + raw.data


# -- reading --------------------------------------------------------------------------------------------------


def child(container: Raw, index: int) -> Raw:
    """Returns the value number `index`. Raises `Malformed`."""
    data, width = container.data, container.width
    entries, head = _layout(container)
    at = entries + index * (1 + width)
    kind = data[at]
    if _inlined(kind, width):
        return Raw(kind, data[at + 1 : at + 1 + _WIDTHS[kind]])
    return _raw(kind, data, _offset(data, at + 1, width, head), len(data))


def key(container: Raw, index: int) -> bytes:
    """Returns the key number `index` of an object. Raises `Malformed`."""
    data, width = container.data, container.width
    at = 2 * width + index * (2 + width)
    start, size = _offset(data, at, width, _layout(container)[1]), _integer(data, at + width, 2)
    if size > len(data) - start:
        raise Malformed("a key reaches past its end")
    return data[start : start + size]


def find_key(container: Raw, name: bytes) -> tuple[int, bool]:
    """Return (index, True if it exists) of a key of an object. For a key that does not exist, the index is the one at
    which the key would be inserted. Raises `Malformed`."""

    def order(index: int) -> tuple[int, bytes]:
        existing = key(container, index)
        return len(existing), existing

    index = bisect_left(range(container.members), (len(name), name), key=order)
    return index, index < container.members and key(container, index) == name


def parts(container: Raw) -> tuple[list[bytes] | None, list[Raw]]:
    """Return (keys or None, values) of a container. Raises `Malformed`, also for overlapping values, so that a rebuilt
    container is never larger than the original container."""
    values: list[Raw] = []
    keys: list[bytes] | None = [] if container.is_object else None
    used = _layout(container)[1]
    for index in range(container.members):
        values.append(value := child(container, index))
        used += 0 if _inlined(value.kind, container.width) else len(value.data)
        if keys is not None:
            keys.append(name := key(container, index))
            used += len(name)
        if used > len(container.data):
            raise Malformed("values that overlap")
    return keys, values


# -- making ---------------------------------------------------------------------------------------------------


def container_of(keys: Sequence[bytes] | None, values: Sequence[Raw]) -> Raw:
    """Build an object (keys in the server's order) or array, in the small form if possible. Raises `Malformed`."""
    kind = kernels.ARRAY if keys is None else kernels.OBJECT
    for large in (0, kernels.LARGE):
        if (data := _build(keys, values, _LARGE_WIDTH if large else 2)) is not None:
            return Raw(kind | large, data)
    raise Malformed("a document of more than 4 GiB")


def replace_member(container: Raw, index: int, value: Raw) -> Raw:
    """Return the container with another value at `index`. Raises `Malformed`, like `insert_member` and
    `remove_member`."""
    if container.members > _FEW:
        made = _Tables(container).without(index).put(index, value).raw()
        if made is not None:
            return made
    keys, values = parts(container)
    values[index] = value
    return container_of(keys, values)


def insert_member(container: Raw, index: int, value: Raw, name: bytes | None = None) -> Raw:
    """Return the container with one more value, before the value at `index`. `name`: the value's key in an object."""
    if name is not None and len(name) > _GREATEST_KEY:
        raise Malformed(f"a key of {len(name)} bytes")
    if container.members > _FEW:
        made = _Tables(container).make_room(index, name).put(index, value).raw()
        if made is not None:
            return made
    keys, values = parts(container)
    values.insert(index, value)
    if keys is not None and name is not None:
        keys.insert(index, name)
    return container_of(keys, values)


def remove_member(container: Raw, index: int) -> Raw:
    """Return the container without the value at `index`."""
    if container.members > _FEW:
        made = _Tables(container).without(index).close_room(index).raw()
        if made is not None:
            return made
    keys, values = parts(container)
    del values[index]
    if keys is not None:
        del keys[index]
    return container_of(keys, values)


class _Tables:
    """A container's entries as arrays. Offsets count from the start of `body`, the bytes after the entries."""

    def __init__(self, container: Raw) -> None:
        self.kind, self.width = container.kind, container.width
        entries, head = _layout(container)
        data = np.frombuffer(container.data, dtype=np.uint8)
        self.body = container.data[head:]
        table = data[entries:head].reshape(-1, 1 + self.width)
        self.kinds: I64 = table[:, 0].astype(np.int64)
        self.values: I64 = _numbers(table[:, 1:])
        self.values[self._outside] -= head
        keys = data[2 * self.width : entries].reshape(-1, 2 + self.width)
        self.keys: I64 = _numbers(keys[:, : self.width]) - head
        self.key_sizes: I64 = _numbers(keys[:, self.width :])
        self._check("an offset that points outside its container")

    @property
    def _outside(self) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        last = kernels.UINT32 if self.width == _LARGE_WIDTH else kernels.UINT16
        return (self.kinds < kernels.LITERAL) | (self.kinds > last)

    def _check(self, why: str) -> None:
        offsets = self.values[self._outside]
        for starts, ends in ((offsets, offsets), (self.keys, self.keys + self.key_sizes)):
            if len(starts) and (starts.min() < 0 or ends.max() > len(self.body)):
                raise Malformed(why)

    def without(self, index: int) -> _Tables:
        """Remove the bytes of a value from the body."""
        if self._outside[index]:
            start = int(self.values[index])
            size = len(_raw(int(self.kinds[index]), self.body, start, len(self.body)).data)
            self.body = self.body[:start] + self.body[start + size :]
            self.values[self._outside & (self.values > start)] -= size
            self.keys[self.keys > start] -= size
        return self

    def put(self, index: int, value: Raw) -> _Tables:
        self.kinds[index] = value.kind
        if _inlined(value.kind, self.width):
            self.values[index] = int.from_bytes(_entry(value, self.width), "little")
        else:
            self.values[index] = len(self.body)
            self.body += value.data
        return self

    def make_room(self, index: int, name: bytes | None) -> _Tables:
        self.kinds = np.insert(self.kinds, index, kernels.LITERAL)
        self.values = np.insert(self.values, index, 0)
        if name is not None:
            self.keys = np.insert(self.keys, index, len(self.body))
            self.key_sizes = np.insert(self.key_sizes, index, len(name))
            self.body += name
        return self

    def close_room(self, index: int) -> _Tables:
        """Remove an entry. The key's bytes remain in the body, unused."""
        self.kinds, self.values = np.delete(self.kinds, index), np.delete(self.values, index)
        if len(self.keys):
            self.keys, self.key_sizes = (
                np.delete(self.keys, index),
                np.delete(self.key_sizes, index),
            )
        return self

    def raw(self) -> Raw | None:
        """Return the changed container; None if it is too large for offsets of this width. Raises `Malformed`."""
        self._check("values that overlap")
        keys, values, width = len(self.keys), len(self.kinds), self.width
        head = 2 * width + keys * (2 + width) + values * (1 + width)
        size = head + len(self.body)
        if size >> 8 * width:
            return None
        key_table = np.hstack((_bytes(self.keys + head, width), _bytes(self.key_sizes, 2)))
        kinds = self.kinds.astype(np.uint8)[:, None]
        table = np.hstack((kinds, _bytes(self.values + self._outside * head, width)))
        numbers = values.to_bytes(width, "little") + size.to_bytes(width, "little")
        return Raw(self.kind, numbers + key_table.tobytes() + table.tobytes() + self.body)


_Table = np.ndarray[tuple[int, ...], np.dtype[np.uint8]]


def _numbers(table: _Table) -> I64:
    """Read one little-endian number per line."""
    width = table.shape[1]
    return np.ascontiguousarray(table).view(f"<u{width}").ravel().astype(np.int64)


def _bytes(numbers: I64, width: int) -> _Table:
    return numbers.astype(f"<u{width}").view(np.uint8).reshape(-1, width)


def _layout(container: Raw) -> tuple[int, int]:
    """Returns (offset of a container's value entries, offset after the value entries)."""
    width, count = container.width, container.members
    entries = 2 * width + (0 if container.kind & kernels.ARRAY else count * (2 + width))
    return entries, entries + count * (1 + width)


def _integer(data: bytes, at: int, width: int) -> int:
    return int.from_bytes(data[at : at + width], "little")


def _offset(data: bytes, at: int, width: int, head: int) -> int:
    offset = _integer(data, at, width)
    if not head <= offset <= len(data):
        raise Malformed("an offset that points outside its container")
    return offset


def _inlined(kind: int, width: int) -> bool:
    return kernels.LITERAL <= kind <= (kernels.UINT32 if width == _LARGE_WIDTH else kernels.UINT16)


def _raw(kind: int, data: bytes, at: int, limit: int) -> Raw:
    """Return the value of type `kind` at `at`. Raises `Malformed` if the value ends after `limit`."""
    if kind <= kernels.GREATEST_CONTAINER:
        width = _LARGE_WIDTH if kind & kernels.LARGE else 2
        if 2 * width > limit - at:
            raise Malformed("a container is cut short")
        count, size = _integer(data, at, width), _integer(data, at + width, width)
        if 2 * width + count * (1 + width if kind & kernels.ARRAY else 3 + 2 * width) > size:
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
    """Return the offset of the end of the string whose length is stored at `at`. A byte contains 7 bits of the length.
    Raises `Malformed`."""
    value = 0
    for k in range(min(5, limit - at)):
        byte = data[at + k]
        value |= (byte & 127) << 7 * k
        if byte < 128:
            return at + k + 1 + value
    raise Malformed("an invalid length")


def _build(keys: Sequence[bytes] | None, values: Sequence[Raw], width: int) -> bytes | None:
    """Build a container. Return None if the container is too large for numbers of this width."""
    outside = [b"" if _inlined(value.kind, width) else value.data for value in values]
    head = 2 * width + len(keys or ()) * (2 + width) + len(values) * (1 + width)
    size = head + sum(map(len, keys or ())) + sum(map(len, outside))
    if size >> 8 * width:
        return None
    out = bytearray(len(values).to_bytes(width, "little") + size.to_bytes(width, "little"))
    at = head
    for name in keys or ():
        out += at.to_bytes(width, "little") + len(name).to_bytes(2, "little")
        at += len(name)
    for value, data in zip(values, outside, strict=True):
        out.append(value.kind)
        out += at.to_bytes(width, "little") if data else _entry(value, width)
        at += len(data)
    return bytes(out + b"".join(keys or ()) + b"".join(outside))


def _entry(value: Raw, width: int) -> bytes:
    """Return a literal or small integer as it is stored in an entry: in `width` bytes, sign-extended if its type is
    signed."""
    sign = value.kind in (kernels.INT16, kernels.INT32)
    number = int.from_bytes(value.data, "little", signed=sign)
    return number.to_bytes(width, "little", signed=sign)
