"""`binlog-dispatcher inspect`: a binlog as text like that of `mysqlbinlog -v`, as JSON, or as a summary.

`sources` and `server_log` yield blocks of events; `bodies` parses the events one by one into `entry` objects;
`transactions` and `bounds` select the events to show; `rows` decodes the rows of a block together; `output` and
`summary` render the events in the order of the log. For an event that cannot be read, the output contains a message in
place of the event. At the end, the command reports the number of such events, and the first error.
"""

from dispatcher.inspect.inspector import Inspection, InspectOptions

__all__ = ["InspectOptions", "Inspection"]
