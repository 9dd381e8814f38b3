"""Converts a document of MySQL's binary JSON to text."""

from __future__ import annotations

import numpy as np

from dispatcher.binlog.decode.jsonb.jsonb import json_strings


def document_text(value: bytes) -> str:
    """Returns the text of the document. Raises `Invalid`."""
    data = np.frombuffer(value, dtype=np.uint8)
    return str(json_strings(data, np.array([0, len(value)], dtype=np.int64))[0].as_py())
