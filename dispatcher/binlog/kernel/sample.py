"""The path of a delivered binlog with one column of each type, from a MySQL 9.7. Decoding it compiles the kernels that
decode rows."""

from pathlib import Path

SAMPLE = Path(__file__).with_name("sample.binlog")
