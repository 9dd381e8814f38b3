"""The targets' names, for who must not import the targets: kernels are compiled, or not, when they are imported."""

TARGETS = (
    "splitter",
    "log",
    "delivered",
    "table_map",
    "query",
    "statement",
    "gtid_text",
    "gtid_binary",
    "json_binary",
    "json_diffs",
    "json_documents",
    "payload",
    "compressed",
    "log_file",
    "inspect",
    "format_description",
    "control",
)
