"""Names of the folders of databases and tables."""

from __future__ import annotations

import re
from urllib.parse import quote, unquote

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from spark_sink.mirror.values.names import OWN_FOLDER, folder_name

FILE_NAME_BYTES_MAX = 255
NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=64)


@pytest.mark.parametrize(
    ("name", "folder"),
    [
        ("orders", "orders"),
        ("Order-Lines_2", "Order-Lines_2"),
        ("a.b", "a~2eb"),
        ("..", "~2e~2e"),
        ("50%", "50~25"),
        ("a b$", "a~20b~24"),
        ("~2e", "~7e2e"),
        ("_binlog", "~5fbinlog"),
        ("größe", "~pgre-6ka8i"),
        ("_größe/", "~p~5fgre~2f-k1a6w"),
        ("日本", "~pwgv71a"),
        ("~pwgv71a", "~7epwgv71a"),
    ],
)
def test_a_folder_is_named_like_the_table_where_readers_allow_it(name: str, folder: str) -> None:
    assert folder_name(name) == folder


@given(NAMES)
@example("%2E")
@example("~")
def test_neither_uris_nor_hidden_folders_nor_cases_change_a_folder(name: str) -> None:
    folder = folder_name(name)
    assert re.fullmatch(r"[A-Za-z0-9~-][A-Za-z0-9_~-]*", folder)
    assert unquote(folder) == folder == quote(folder)
    assert folder != OWN_FOLDER


@given(NAMES, NAMES)
@example("a.b", "a~2eb")
@example("日本", "~pwgv71a")
def test_different_names_have_different_folders(one: str, other: str) -> None:
    if one != other:
        assert folder_name(one) != folder_name(other)


@pytest.mark.parametrize("history", ["", "__history"])
@pytest.mark.parametrize(
    "name",
    [
        "$" * 64,
        "€" * 64,
        "日本語" * 21,
        "".join(chr(0x80 + 1000 * (37 * i % 54)) for i in range(64)),  # from all scripts
    ],
)
def test_a_name_of_64_characters_fits_into_a_file_system(name: str, history: str) -> None:
    assert len(folder_name(name + history)) <= FILE_NAME_BYTES_MAX
