"""All remedies of the mirror: texts that say what a person can do about a stopped table, history or consumer. Pure.

A remedy contains whole commands. But it does not contain the options that name the mirror and the daemon, such as
`--config`: the process that prints a command adds them, from its own command line (`completed`).

The docstring of each function says in which situation its remedy helps. `tests/mirror/test_remedies.py` runs the
commands of each remedy as they are printed.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from dispatcher.model.errors import POLICY, BinlogError, ErrorKind, full_metadata

MIRROR = "python -m spark_sink"
DAEMON = "binlog-dispatcher consumers"


@dataclass(frozen=True, slots=True)
class CommandOptions:
    """The options of this process that `completed` adds to the commands of a message, as words of a command line.

    `target`: the options that name the mirror; `run`: the options of the command `run`; `daemon`: the option with the
    daemon's address; `program`: how this process was started, in place of `MIRROR`.
    """

    target: tuple[str, ...] = ()
    run: tuple[str, ...] = ()
    daemon: tuple[str, ...] = ()
    program: str = MIRROR


_COMMAND = re.compile(
    rf"{re.escape(MIRROR)} (?P<mirror>resolve|copy|adopt|verify|repair|evidence|tables|run)(?=[ ;]|\Z)"
    rf"|{re.escape(DAEMON)} (?P<daemon>seek|forget)(?=[ ;]|\Z)"
)


def completed(text: str, options: CommandOptions) -> str:
    """Adds the options of this process to the commands in a message, and names its program. Returns the message."""

    def words(found: re.Match[str]) -> str:
        more = options.run if found["mirror"] == "run" else options.target
        if found["daemon"]:
            more = options.daemon
        command = found[0].replace(MIRROR, options.program)
        return " ".join([command, shlex.join(more)]) if more else command

    return _COMMAND.sub(words, text)


def naming(text: str, old: str, new: str) -> str:
    """Replaces, in a message about a table, the table's former label `old` by its present label `new`. In commands, the
    label is in the shell's quotes if it needs them."""
    before = rf"(?P<command>{re.escape(MIRROR)} (?:resolve|copy|adopt|verify|repair|evidence) )|(?<![\w$./-])"
    labels = "|".join(map(re.escape, (shlex.quote(old), old)))

    def renamed(found: re.Match[str]) -> str:
        command = found["command"]
        return f"{command}{shlex.quote(new)}" if command else new

    return re.sub(rf"(?:{before})(?:{labels})(?![\w$/-]|\.\w)", renamed, text)


# -- commands ------------------------------------------------------------------------------------------------------


def _resolve(label: str, way: str) -> str:
    return f"{MIRROR} resolve {shlex.quote(label)} --as {way}"


def _copy(label: str) -> str:
    return f"{MIRROR} copy {shlex.quote(label)}"


def _repair(label: str) -> str:
    return f"{MIRROR} repair {shlex.quote(label)}"


def _adopt(label: str, consumer: str) -> str:
    return f"{MIRROR} adopt {shlex.quote(label)} --consumer {shlex.quote(consumer)}"


def _run_behind_loss() -> str:
    return f"{MIRROR} run --available-now --no-fail-on-data-loss"


def _seek(consumer: str) -> str:
    return f"{DAEMON} seek {shlex.quote(consumer)} --to earliest"


# -- of a table ----------------------------------------------------------------------------------------------------


_FIRST = {
    ErrorKind.METADATA_MISSING: full_metadata(),
    ErrorKind.UNSUPPORTED_TYPE: "change the column's type on the server, or leave the table out with exclude",
}
_NULL_IN_PLACE = "to have NULL in its place, set on_invalid: quarantine for the table in the settings of the mirror"


def of_fault(fault: BinlogError, label: str) -> str:
    """Returns the text of a fault of the table's data, with the remedy of the mirror."""
    if MIRROR in fault.remedy:
        return str(fault)
    own = _FIRST.get(fault.kind, "")
    if fault.kind is ErrorKind.INVALID_VALUE:
        own = f"correct the value on the server; or {of_setting(label, _NULL_IN_PLACE)}"
    if fault.remedy != POLICY[fault.kind].remedy:
        own = fault.remedy
    place = f" ({fault.where})" if fault.where else ""
    ways = of_lost_file(label) if fault.kind is ErrorKind.TARGET_FILES else of_entry(label)
    return f"{fault.kind.value}: {fault.what}{place}; {own + '; ' if own else ''}{ways}"


def of_entry(label: str) -> str:
    """An entry of the log cannot be applied to the table."""
    return (
        f"to have the table copied again: {_resolve(label, 'recopy')}; to go on after you have applied the entry by"
        f" hand: {_resolve(label, 'applied')}; to go on without it, as partial: {_resolve(label, 'skip')}"
    )


def of_statement(label: str) -> str:
    """The mirror cannot parse a statement that may have changed the table."""
    return (
        "do to the Delta table what the statement did to the table, then:"
        f" {_resolve(label, 'applied')}; or have the table copied again: {_resolve(label, 'recopy')}"
    )


def of_unknown_table(label: str, *, can_copy: bool) -> str:
    """The log contains rows of the table, but not its CREATE TABLE."""
    return (
        f"{_to_copy(can_copy)}: {_copy(label)}; or go on without them: {_resolve(label, 'partial')}"
    )


def of_unknown_rows(label: str, *, can_copy: bool) -> str:
    """The rows of the mirrored table no longer equal the rows of the server's table."""
    return f"{_to_copy(can_copy)}: {_resolve(label, 'recopy')}"


def of_difference(label: str, *, columns: bool) -> str:
    """The table is stopped because it differs from the server's table. `columns`: True if the columns differ, False if
    only rows differ."""
    again = f"copy it again: {_resolve(label, 'recopy')}"
    mended = f"after you have corrected it: {_resolve(label, 'retry')}"
    if columns:
        return f"{again}; or, {mended}"
    return (
        f"let the mirror rewrite the rows that differ: {_repair(label)}; or {again}; or, {mended}"
    )


def of_live_difference(label: str) -> str:
    """Rows of a table that is not stopped differ from the server's rows."""
    return f"let the mirror rewrite the rows that differ: {_repair(label)}"


def of_conflict(label: str) -> str:
    """The columns that the log describes differ from the columns that the server shows."""
    return (
        "if the table's values are right, let it have the columns of the log:"
        f" {_resolve(label, 'applied')}; or copy it again: {_resolve(label, 'recopy')}"
    )


def of_other_history(label: str) -> str:
    """The table's rows in the log belong to another epoch than the rows of its Delta table."""
    return (
        f"copy it again: {_resolve(label, 'recopy')}; or, if its rows equal the server's at that point:"
        f" {_resolve(label, 'applied')}"
    )


def of_other_folder(label: str, consumer: str) -> str:
    """Another Delta table is in the folder in which the table has to be created."""
    return (
        f"make it this consumer's: {_adopt(label, consumer)}; or move its folder away, then:"
        f" {_resolve(label, 'retry')}"
    )


def of_other_consumer(label: str, consumer: str) -> str:
    """Two consumers mirror one table."""
    return (
        "leave it out of one of the two with exclude, or make it this consumer's:"
        f" {_adopt(label, consumer)}"
    )


def of_setting(label: str, change: str) -> str:
    """A setting of the mirror does not fit the table. `change`: the change of the settings, as an instruction."""
    return f"{change}, start the job with that, then: {_resolve(label, 'retry')}"


def of_copy_again(label: str, first: str = "") -> str:
    """The table can only be copied again. `first`: what a person has to do before the copy."""
    return f"{first + ', then ' if first else ''}copy it again: {_resolve(label, 'recopy')}"


def of_shown_columns(label: str, columns: Sequence[str]) -> str:
    """The table has got a name under which the settings do not mask `columns`."""
    them = "it" if len(columns) == 1 else "them"
    return (
        f"name {them} in mask for {label} in the settings and restart the job, or leave {them} out to show the values;"
        f" then copy the table: {_resolve(label, 'recopy')}"
    )


def of_changed_masks(label: str, columns: Sequence[str]) -> str:
    """The settings now mask columns of a complete table in another way than before."""
    return (
        f"{label} shows {', '.join(columns)} as the former settings of mask say, until its next change; to copy it now:"
        f" {_copy(label)}"
    )


def of_lost_file(label: str) -> str:
    """A file that the table needs cannot be read."""
    return (
        f"copy the table again: {_resolve(label, 'recopy')}; or put the file back in place, then:"
        f" {_resolve(label, 'retry')}"
    )


def of_gap(label: str, *, can_copy: bool) -> str:
    """Changes of the table were purged or lost, and the mirror continues to apply the table without them."""
    return f"{_to_copy(can_copy)}: {_copy(label)}"


def of_cascades(label: str) -> str:
    """Foreign keys may change rows without an entry in the server's log."""
    return f"compare with {MIRROR} verify {shlex.quote(label)}"


def of_history(label: str) -> str:
    """The history of a table is stopped. `label`: the label of the history."""
    return f"to go on with the table's rows as they are: {_resolve(label, 'recopy')}"


def of_files_for_iceberg(label: str) -> str:
    """Iceberg's readers could not read the files of the table."""
    return f"copy it again, then its files are written for Iceberg: {_copy(label)}"


def _to_copy(can_copy: bool) -> str:
    if can_copy:
        return "copy it"
    return "name a server to copy from in the section copy of the settings, and copy the table"


# -- of a consumer -------------------------------------------------------------------------------------------------

_AND_THEN = "the consumer's tables are copied again, or become partial where the settings say so"


def of_purge(consumer: str) -> str:
    """The consumer cannot continue at the position at which the mirror's log ends."""
    return (
        f"stop this job, move the consumer unless you have done so: {_seek(consumer)}; then go on behind what is"
        f" missing: {_run_behind_loss()}; {_AND_THEN}"
    )


def of_other_log(consumer: str) -> str:
    """The server's log is not the one that the consumer has read."""
    return f"if it is the wrong server, correct its address; if it was reset or restored, {of_purge(consumer)}"


def of_move() -> str:
    """A person has to move the consumer to a position that the daemon's message names. The text of this remedy
    continues that message."""
    return f"then, with this job stopped: {_run_behind_loss()}; {_AND_THEN}"


def of_lost_log(path: str) -> str:
    """The mirror's log, or its end, cannot be read. `path`: the path of the log's folder."""
    return (
        f"put it back as it was; or stop this job, move {path} to another place if Delta cannot read it, and go on"
        f" without what is lost: {_run_behind_loss()}; {_AND_THEN}"
    )


def of_lost_control(path: str) -> str:
    """The control table cannot be read. `path`: the path of its folder."""
    return f"put {path} back as it was; without it, mirror into another target"


def of_two_jobs() -> str:
    """Another job appends to the mirror's log for this consumer, or applies the consumer."""
    return "run one mirror job per consumer and target, and end the others"
