"""The error of a copy's worker that does not have the target's folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from dispatcher.binlog.table_map.column_types import InvalidDates
from dispatcher.model.errors import BinlogError, ErrorKind
from dispatcher.mysql.login import Endpoint
from spark_sink.mirror.copy.chunk_reader import ChunkReading, Destination, write_chunks


def test_an_executor_that_does_not_share_the_folder_says_so(tmp_path: Path) -> None:
    endpoint = Endpoint("127.0.0.1", 1, "reader", "")
    reading = ChunkReading(endpoint, "shop.t", (), InvalidDates.NULL, (), ("SELECT 1",))
    destination = Destination(str(tmp_path / "elsewhere"), (), "4.2.0")
    with pytest.raises(BinlogError) as caught:
        next(write_chunks(reading, destination, iter(())))
    assert caught.value.kind is ErrorKind.SETTINGS
    assert str(tmp_path / "elsewhere") in str(caught.value)
    assert not (tmp_path / "elsewhere").exists()
