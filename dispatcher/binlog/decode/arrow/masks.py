"""Masks the values of a column. All readers use the function `masked`.

The function masks the text form of a value: a text as it is, a number or a date as SQL shows it, bytes as hexadecimal
digits. So a value that a copy has read from the server and the same value in the log have the same mask.
"""

from __future__ import annotations

import hashlib
import hmac

import pyarrow as pa
import pyarrow.compute as pc

from dispatcher.binlog.table_map.column_types import Mask, MaskForm

_SHOWN = 4  # characters of `last4`


def masked(values: pa.Array, mask: Mask) -> pa.Array:
    """Returns the masked values. The form `null` gives NULLs of the same type, every other form gives texts. NULL stays
    NULL."""
    if mask.form is MaskForm.NULL:
        return pa.nulls(len(values), values.type)
    # Each distinct value is masked once.
    found = values.dictionary_encode()
    texts = [_masked(text, mask) for text in _texts(found.dictionary)]
    return pa.array(texts, pa.string()).take(found.indices)


def _texts(values: pa.Array) -> list[str]:
    if pa.types.is_binary(values.type):
        return [value.hex() for value in values.to_pylist()]
    if pa.types.is_floating(values.type):
        values = pc.add(values, pa.scalar(0.0, values.type))  # -0.0 and 0.0 are one key
    texts: list[str] = values.cast(pa.string()).to_pylist()
    return texts


def _masked(text: str, mask: Mask) -> str:
    match mask.form:
        case MaskForm.LAST4:
            return "****" + (text[-_SHOWN:] if len(text) > _SHOWN else "")
        case MaskForm.KEYED:
            return hmac.digest(mask.secret, text.encode(), "sha256").hex()
    return hashlib.sha256(text.encode()).hexdigest()
