"""The targets' names, for programs that must not import the targets: the import decides whether kernels are
compiled."""

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
