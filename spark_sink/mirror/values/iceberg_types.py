"""Determines which Delta tables Iceberg's readers can read: by a property of the table, and by the changes of types.
Pure.

With `COMPATIBLE`, Delta writes field ids for the elements of arrays, and timestamps of 64 bits, and it refuses changes
of types that Iceberg lacks (Delta protocol, "Iceberg Compatibility V2").
"""

from __future__ import annotations

import json
import re

COMPATIBLE = "delta.enableIcebergCompatV2"
_DECIMAL = re.compile(r"decimal\((\d+),\s*(-?\d+)\)\Z")
# Iceberg's int has 32 bits; there are no smaller types.
_INTEGERS = ("byte", "short", "integer", "long")


def promotes(before: str, after: str) -> bool:
    """True if Iceberg can change a column's type from `before` to `after` without a rewrite of files (Iceberg's
    specification, "Schema Evolution", for format version 2). Types are in Spark's JSON form, such as `"decimal(5,2)"`
    with the quotation marks."""
    old, new = json.loads(before), json.loads(after)
    if old == new:
        return True
    if not isinstance(old, str) or not isinstance(new, str):
        return False
    if old in _INTEGERS and new in _INTEGERS:
        return _INTEGERS.index(old) <= _INTEGERS.index(new)
    narrow, wide = _DECIMAL.match(old), _DECIMAL.match(new)
    if narrow and wide:
        return narrow[2] == wide[2] and int(narrow[1]) <= int(wide[1])
    return bool((old, new) == ("float", "double"))
