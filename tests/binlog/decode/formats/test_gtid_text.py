"""Texts of many GTID events at once, compared with the parser of single events."""

from __future__ import annotations

from uuid import UUID

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dispatcher.binlog.decode.formats.gtid_text import gtid_strings
from dispatcher.binlog.event.gtid import parse_gtid_event
from dispatcher.binlog.event.types import EventType
from dispatcher.model.errors import BinlogError, ErrorKind
from tests.support import control_encoder as c
from tests.support import event_encoder as e

sources = st.tuples(
    st.uuids(), st.just("") | st.from_regex(r"[a-z_][a-z0-9_]{0,31}", fullmatch=True)
)


def texts(events: list[bytes]) -> list[str]:
    buf = np.frombuffer(b"".join(events), dtype=np.uint8)
    buf.flags.writeable = False
    at = np.cumsum([0, *map(len, events)])[:-1].astype(np.int64)
    found: list[str] = gtid_strings(buf, at).to_pylist()
    return found


@given(st.lists(st.tuples(sources, st.integers(1, 2**63 - 2)), max_size=5))
@example([((UUID(int=2**128 - 1), "a" * 32), 2**63 - 2)])
def test_texts_with_and_without_tags(gtids: list[tuple[tuple[UUID, str], int]]) -> None:
    events, want = [], []
    for (source, tag), gno in gtids:
        for kind, body in (
            (EventType.GTID_TAGGED, c.gtid_tagged_body(source, tag, gno)),
            (EventType.GTID, e.gtid_body(source, gno)),
        ):
            events.append(e.event(kind, body))
            want.append(str(parse_gtid_event(kind, body)))
    assert texts(events) == want


def test_a_damaged_gtid_event_is_a_typed_error() -> None:
    body = c.gtid_tagged_body(e.SERVER, "tag", 5)
    for end in range(25, len(body) - 8, 3):
        short = body[:end]
        try:
            texts([e.event(EventType.GTID_TAGGED, short)])
        except BinlogError as error:
            assert error.kind is ErrorKind.MALFORMED_EVENT  # noqa: PT017 - bytes after the tag are not read
    with pytest.raises(BinlogError, match="GTID_TAGGED_EVENT is damaged"):
        texts([e.event(EventType.GTID_TAGGED, body[:5] + b"\xff" * 30)])
