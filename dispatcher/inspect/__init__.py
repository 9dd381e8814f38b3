"""`binlog-dispatcher inspect`: a binlog as people know it from `mysqlbinlog -v`, or as JSON, or in numbers.

Blocks of events come from a source (`sources`, `remote`), are described one by one (`describe`), their rows decoded
together (`rows`), and rendered (`text`, `jsonl`) in the order of the log. Nothing is skipped silently: what cannot be
shown is said in its place, and again at the end.
"""

from dispatcher.inspect.inspector import Inspection, InspectOptions

__all__ = ["InspectOptions", "Inspection"]
