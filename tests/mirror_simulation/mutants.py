"""The mutants: each breaks one rule of the mirror by one change of one function. The simulation must detect each
mutant."""

# ruff: noqa: E501 - a change of the source is easier to read in one line

from __future__ import annotations

from functools import partial

from tests.simulation.changes import Assign, Drop, If, Insert, Replace, Return
from tests.simulation.mutant import Mutant

_mutant = partial(Mutant, package="spark_sink.mirror.rules")
_RULES = "tests/mirror_simulation/test_rules.py::"
_FAULTS = "tests/mirror_simulation/test_fault_rules.py::"
_LOST = "tests/mirror_simulation/test_lost_rules.py::"
_NAMED = "tests/mirror_rules/test_renames.py::"
_RECOMPUTED = "tests/mirror_rules/test_recomputed.py::"
_OMITTED = "tests/mirror_rules/test_omitted_columns.py::"
_SESSION = "tests/mirror_rules/test_session_facts.py::"
_PLAYS = "tests/mirror_simulation/test_plays.py::test_a_play_has_the_transcript_that_its_file_shows"

_REQUESTS = (
    _mutant(
        "requests after jobs",
        "a request is answered before the next work of its table",
        "mirror.Mirror._plan",
        Insert("self._answer_requests()", "self._advance()"),
    ),
    _mutant(
        "requests when no step runs",
        "a request waits for the works of its table only",
        "mirror.Mirror._answer_requests",
        Replace(
            "self.state.is_free(record.table_id)",
            "self.state.is_free(record.table_id) and not self._steps",
        ),
    ),
    _mutant(
        "a request during a move",
        "a move that was begun ends before a request is answered",
        "mirror.Mirror._answer_requests",
        Replace("self.state.is_free(record.table_id)", "not self.state.is_busy(record.table_id)"),
    ),
    _mutant(
        "a record overwrites a request",
        "what was asked for during a work stays asked for",
        "mirror_state.MirrorState.update",
        Replace(
            "replace(record, request=now.request, registered=now.registered, refused=now.refused, deletion_vectors=now.deletion_vectors)",
            "replace(record, registered=now.registered, refused=now.refused, deletion_vectors=now.deletion_vectors)",
        ),
    ),
    _mutant(
        "a record overwrites a registration",
        "a name in the catalog that was told during a work stays",
        "mirror_state.MirrorState.update",
        Replace(
            "replace(record, request=now.request, registered=now.registered, refused=now.refused, deletion_vectors=now.deletion_vectors)",
            "replace(record, request=now.request)",
        ),
    ),
    _mutant(
        "a request is forgotten",
        "a request stands until a record that answers it is stored",
        "mirror_state.MirrorState.ask",
        Drop("self.hold(replace(self.records[table_id], request=request))"),
    ),
    _mutant(
        "a request by name is not answered",
        "a request for a copy by a name is answered in the record of the table",
        "mirror.Mirror._requests",
        Replace("answering(made, label, request_id)", "made"),
    ),
    _mutant(
        "a dropped table is revived",
        "a name has one record that is not dropped",
        "mirror.Mirror._after_request",
        If("all(other.is_dropped for other in named)", "False"),
    ),
    _mutant(
        "skip leaves a table complete",
        "a table of which an entry was left out is partial",
        "requests._resumed",
        Replace("(Wish.SKIP, Wish.PARTIAL)", "(Wish.PARTIAL,)"),
    ),
    _mutant(
        "retry after skip makes a table complete",
        "a table that is stopped again returns to what the last request made of it",
        "transitions.stopped",
        Replace(
            "returns_to(record)",
            "record.state.stopped.was if isinstance(record.state, CatchingUp) and record.state.stopped else returns_to(record)",
        ),
        tests=f"{_PLAYS}[skip]",
    ),
    _mutant(
        "a resolved replay goes on in place",
        "a table that was stopped during the replay of its copy goes on with the copy",
        "requests._resumed",
        If("stopped.copy", "False"),
    ),
    _mutant(
        "a request about a table that is left out",
        "a table that the settings leave out stays as it is",
        "requests.after_request",
        If("LeftOut", "False"),
    ),
    _mutant(
        "asks a live table to retry",
        "only a stopped table is resumed",
        "requests.after_request",
        If("Stopped", "isinstance(record.state, Creating)"),
    ),
    _mutant(
        "a request waits for a pause",
        "a request ends the pause of a job of its table",
        "mirror.Mirror._try_again",
        Drop("task.not_before = 0.0"),
        tests=_RULES + "test_a_request_ends_a_pause",
    ),
    _mutant(
        "a copy waits for the pause of its queue",
        "a table that waits does not keep a place of the copies",
        "queues.TableQueues.resume",
        Return("None"),
        tests=_RULES + "test_a_copy_does_not_wait_for_the_pause_of_its_queue",
    ),
    _mutant(
        "a request is answered twice",
        "a request that is handled is not asked again",
        "mirror.Mirror._requests",
        Replace("request.id != record.handled", "True"),
        tests=_RULES + "test_a_request_is_answered_once",
    ),
    _mutant(
        "a copy for each request",
        "a request for a copy does not begin one again that runs",
        "requests.after_request",
        Assign("is_copied", "False"),
        tests=_RULES + "test_a_request_for_a_copy_by_name_does_not_begin_a_copy_again",
    ),
)

_RECORDS = (
    _mutant(
        "a work before its record is stored",
        "what a work relies on is durable",
        "mirror_state.MirrorState.is_busy",
        Return("self._using[table_id] > 0"),
    ),
    _mutant(
        "two works of a table",
        "works of one table run one after the other",
        "mirror_state.MirrorState.is_busy",
        Return("self.is_unsaved(table_id)"),
    ),
    _mutant(
        "a store that failed is forgotten",
        "records that were not stored are stored with the next ones",
        "mirror.Mirror._stored",
        Insert("self._store_failures += 1", "state.saving = {}"),
    ),
    _mutant(
        "what changes during a store is forgotten",
        "a record that changes while it is stored is stored again",
        "mirror.Mirror._stored",
        Insert("self._store_failures, state.saving = 0, {}", "state.unsaved = {}"),
    ),
    _mutant(
        "two stores",
        "records are stored in one commit at a time",
        "mirror.Mirror._store",
        If("self._store_run", "state.now < self._store_at"),
    ),
    _mutant(
        "the record before the change",
        "the Delta table is changed before the record says so",
        "tasks.table_task.TableTask.change",
        Insert(
            "self.begin([record.table_id], lambda run: ChangeTable(run, action.then, action.change), changed)",
            "self.save(action.then, action.why)",
        ),
    ),
    _mutant(
        "a statement without its change",
        "a statement changes the Delta table",
        "table_work._statement",
        Assign("pending", "None"),
    ),
    _mutant(
        "does not ask again after a failure",
        "a commit that failed may be there all the same",
        "mirror_state.MirrorState.doubt",
        Return("None"),
        tests=_RULES + "test_after_a_failure_the_delta_table_is_asked_what_it_has",
    ),
    _mutant(
        "an answer that no task expects",
        "a work that was begun in an answer is answered, too",
        "mirror.Mirror._answer",
        Drop("self._expect_answer(task)"),
        tests=_RULES + "test_a_work_that_begins_in_an_answer_is_answered",
    ),
    _mutant(
        "a failure is tried again at once",
        "a failure is tried again with backoff",
        "tasks.task.pause_s",
        Return("0.0"),
        tests=f"{_PLAYS}[failed_steps]",
    ),
    _mutant(
        "failures are not told",
        "after three failures in a row the record says so",
        "tasks.task.table_failed",
        If("REPORTED_AFTER", "False"),
        tests=f"{_PLAYS}[failed_steps]",
    ),
    _mutant(
        "works after the end",
        "nothing of a consumer is applied when another job has it",
        "mirror.Mirror.step",
        If("state.failure", "True"),
    ),
    _mutant(
        "works while the job ends",
        "nothing begins while the job ends",
        "mirror.Mirror._drive",
        Replace("self.state.stopping and task is not self._repair", "False"),
    ),
)

_QUEUES = (
    _mutant(
        "a waiting table keeps its memory",
        "a table that can go on goes on",
        "queues.TableQueues.is_full",
        Drop("queue.leave()"),
    ),
    _mutant(
        "a table takes all memory",
        "a table has at most its share of the memory",
        "table_queue.TableQueue.add",
        Assign("over", "False"),
    ),
    _mutant(
        "the log is read without end",
        "the log is read while there is memory",
        "queues.TableQueues.is_full",
        Return("False"),
    ),
    _mutant(
        "the reader takes the last memory",
        "memory is kept for the tables that read again what they left",
        "queues.TableQueues.reserves",
        Return("False"),
        tests="tests/mirror_rules/test_queues.py::test_memory_is_reserved_for_tables_that_read_again",
    ),
    _mutant(
        "left items are not read again",
        "a table reads again what it left in the log",
        "queues.TableQueues.next_left",
        Return("None"),
    ),
    _mutant(
        "a RENAME stays in the log",
        "a RENAME is one barrier in the queues of all its tables",
        "table_queue._can_stay",
        Return("not isinstance(item, LostItem)"),
    ),
    _mutant(
        "items that do not fit are skipped",
        "what is read again and does not fit stays in the log",
        "table_queue.TableQueue.takes",
        Replace("_begin(item) - 1", "to"),
    ),
    _mutant(
        "items are read again twice",
        "an answer about items that were left anew since then is not used",
        "queues.TableQueues.takes",
        Replace("queue.left.first == asked.first", "True"),
        tests="tests/mirror_rules/test_queues.py::test_an_answer_that_comes_too_late_is_not_used",
    ),
    _mutant(
        "lost items are passed",
        "a table stops where items that it left in the log are lost",
        "table_queue.TableQueue.splits",
        Drop("self.rest.extendleft(reversed(parts))"),
        tests="tests/mirror_rules/test_queues.py::test_items_that_are_lost_stop_their_table_only",
    ),
    _mutant(
        "the watermark passes left items",
        "the watermark is before each item that is only in the log",
        "table_queue.TableQueue.begin",
        Return(
            "None if self.head is None else self.head.last if isinstance(self.head, LeftItems) else self.head.first if isinstance(self.head, LostItem) else self.head.lsn"
        ),
    ),
    _mutant(
        "a table with many changes pauses",
        "a queue pauses only when its steps have taken what waits",
        "queues.TableQueues.done",
        Assign("not_before", "not_before"),
        tests="tests/mirror_rules/test_queues.py::test_a_queue_does_not_pause_while_more_waits_than_a_step_may_have",
    ),
    _mutant(
        "a failed read is repeated at once",
        "after a failed read of left items there is a pause",
        "queues.TableQueues.not_read",
        If("not queue.items", "False"),
        tests="tests/mirror_rules/test_queues.py::test_a_failed_read_is_repeated_after_a_pause",
    ),
)

_LOG = (
    _mutant(
        "the watermark passes what waits",
        "the watermark is before each entry that is not applied",
        "queues.TableQueues.watermark",
        Return("read"),
    ),
    _mutant(
        "the watermark passes lost entries",
        "the watermark is before all entries that are lost, until the tables say so",
        "table_queue.TableQueue.begin",
        Return(
            "None if self.head is None else self.head.first if isinstance(self.head, LeftItems) else self.head.lsn"
        ),
    ),
    _mutant(
        "queues are dealt with when they are read",
        "a table's entries are executed or left before its copy goes on",
        "queues.TableQueues.dealt_with",
        Return("read"),
    ),
    _mutant(
        "all is dealt with after a start",
        "after a start nothing is dealt with that was not read again",
        "mirror.Mirror._start",
        Insert(
            "self._repair = RepairTask(state, self._repaired)", "state.append_seen = started.newest"
        ),
    ),
    _mutant(
        "names are forgotten early",
        "a table is found by its former names until the watermark is behind them",
        "mirror.Mirror._watermark",
        Replace("without_old_names(record, needed)", "without_old_names(record, state.read_to)"),
    ),
    _mutant(
        "a history loses former names",
        "a table keeps its former names while a history needs them",
        "mirror.Mirror._watermark",
        Assign("needed", "watermark"),
        tests=_RULES + "test_former_names_stay_while_a_history_needs_them",
    ),
    _mutant(
        "the log of a stopped table is deleted",
        "the log keeps what tables need that are stopped, copied or replayed",
        "mirror.Mirror._needs_log",
        Replace("not (record.is_live or is_waiting)", "False"),
    ),
    _mutant(
        "the log of a stored record is deleted",
        "the log keeps what a stored record needs until a record that needs less is stored",
        "mirror.Mirror.needed_to",
        Assign("records", "list(state.records.values())"),
        tests=_LOST + "test_the_log_is_kept_until_a_record_that_needs_less_is_stored",
    ),
    _mutant(
        "the log of a history is deleted",
        "the log keeps what histories need",
        "mirror.Mirror._needs_log",
        Replace("self._follows(record.name) and (may_begin or not is_waiting)", "False"),
    ),
    _mutant(
        "the log of a history that has not begun is deleted",
        "the log keeps what a history needs that can begin with its table",
        "mirror.Mirror._needs_log",
        Assign("may_begin", "False"),
        tests="tests/mirror_rules/test_needed_log.py::test_the_log_is_needed_by_histories_that_can_begin",
    ),
    _mutant(
        "a barrier does not wait",
        "a RENAME is executed when all its tables have reached it",
        "queues.TableQueues._start_barrier",
        Replace("queue.is_free(now) and queue.head is barrier", "queue.is_free(now)"),
    ),
    _mutant(
        "forgets the pause of a queue",
        "the rules are called when a pause ends",
        "mirror.Mirror.next_wakeup",
        Assign("pause", "None"),
    ),
    _mutant(
        "forgets the pause of a job",
        "the rules are called when a pause ends",
        "mirror.Mirror.next_wakeup",
        Assign("times", "[]"),
    ),
    _mutant(
        "forgets to store again",
        "a store that failed is tried again",
        "mirror.Mirror.next_wakeup",
        Replace("self._store_due()", "False"),
    ),
    _mutant(
        "forgets the watermark",
        "the watermark is stored when it is due",
        "mirror.Mirror.next_wakeup",
        Replace("self.state.watermark() > self._written", "False"),
    ),
    _mutant(
        "rows of an excluded table",
        "a table that the settings leave out is not applied",
        "plan.route",
        Replace("[] if excluded(name) else [(name, entry)]", "[(name, entry)]"),
    ),
    _mutant(
        "statements of an excluded table",
        "a table that the settings leave out is not applied",
        "plan._statement_items",
        Replace("not excluded(name)", "True"),
    ),
    _mutant(
        "a gap is ignored",
        "a table is not complete behind a gap of the log",
        "plan.route",
        Replace("entry.gap", "False"),
    ),
    _mutant(
        "a gap during a copy is ignored",
        "a copy begins again behind a gap of the log",
        "table_work._doubtful",
        Replace("isinstance(record.state, Copying | Copied | Replaying)", "False"),
        tests=_RULES + "test_a_copy_begins_again_behind_a_gap_so_that_its_table_is_complete",
    ),
    _mutant(
        "an old end of the log",
        "S is not older than the end of the log",
        "mirror_state.MirrorState.learn_end",
        If("self.end.append < entry.append", "is_end"),
    ),
    _mutant(
        "lost entries are skipped",
        "tables stop before entries that the log has lost",
        "tasks.log_tasks.ReadTask._leave_out",
        Drop("state.queues.add(name, LostItem(first, last, lost.error))"),
    ),
    _mutant(
        "a replay skips lost entries",
        "a replay stops before entries that the log has lost",
        "tasks.replay_task.ReplayTask._lost",
        Insert("record = self.record", "self.cursor = last_lsn(lost.last); return"),
    ),
    _mutant(
        "a history skips lost entries",
        "a history stops before entries that the log has lost",
        "tasks.history_task.HistoryTask._read",
        Insert("self._stand(answer.error)", "self.cursor = (answer.last + 1 << 32) - 1; return"),
        tests=_LOST + "test_a_history_stops_before_entries_that_are_lost",
    ),
    _mutant(
        "the end of the log is not read on",
        "S is the newest end of the log that was read",
        "mirror_state.MirrorState.learn_end",
        If("self.end.append < entry.append", "is_end and self.end is None"),
    ),
)

_TABLES = (
    _mutant(
        "an entry twice",
        "an entry up to the record's lsn is dealt with",
        "table_work.next_action",
        Replace("work.lsn <= record.from_lsn", "work.lsn < record.from_lsn"),
    ),
    _mutant(
        "items of a table that is left out",
        "a table that the settings leave out takes no items of a former name",
        "table_work.next_action",
        Replace(
            "work.lsn <= record.from_lsn or isinstance(record.state, LeftOut)",
            "work.lsn <= record.from_lsn",
        ),
        tests=_RULES + "test_a_table_that_is_left_out_takes_no_gap_of_a_former_name",
    ),
    _mutant(
        "rows twice",
        "a run is applied behind what the Delta table has of it",
        "table_work._rows",
        Assign("rest", "run"),
    ),
    _mutant(
        "exact without knowing",
        "an inserted row may be in a table that was not known to be equal",
        "table_work._rows",
        Assign("exact", "True"),
    ),
    _mutant(
        "columns of rows are replaced",
        "only a table without rows gets other columns",
        "table_work._following",
        Insert(
            "new = _signature(entry.table_map, now.policy.omitted, now.invalid_dates)",
            "facts = replace(facts, empty=True)",
        ),
    ),
    _mutant(
        "unknown rows are believed",
        "a table whose rows a statement has changed unseen is copied",
        "table_work.delta_action",
        If("moved.recopy and not facts.empty", "False"),
    ),
    _mutant(
        "a foreign folder is taken",
        "a Delta table of somebody else is not touched",
        "table_work._made",
        If("not has_folder and facts.owner and not replaces", "False"),
        tests=_RULES + "test_a_folder_of_somebody_else_is_not_touched",
    ),
    _mutant(
        "a copied folder is taken",
        "a Delta table that somebody has copied is not touched",
        "mirror_state.MirrorState._has_left",
        Return("record is not None"),
        tests=_RULES + "test_a_folder_that_somebody_copied_is_not_touched",
    ),
    _mutant(
        "a replay begins behind a statement that the record lacks",
        "a statement that the Delta table has is read again, until the record has it",
        "tasks.replay_task.ReplayTask._forward",
        Assign("self.cursor", "max(applied, record.from_lsn)"),
        tests=_RULES + "test_a_statement_of_a_replay_gets_into_the_record_after_a_kill",
    ),
    _mutant(
        "the rows of a dropped table are kept",
        "a table without a folder takes the place of a dropped table, without its rows",
        "table_work._made",
        Assign("replaces", "False"),
        tests=_RULES + "test_a_table_without_rows_gets_the_place_of_a_dropped_one",
    ),
    _mutant(
        "the table of another consumer",
        "a table is mirrored by one consumer",
        "table_work._first_rows",
        If("context.other_owner(name)", "False"),
        tests=_RULES + "test_a_table_of_another_consumer_is_not_mirrored",
    ),
    _mutant(
        "rows of another history",
        "rows of another history of the server stop a table",
        "table_work.require_same_history",
        If("record.epoch", "False"),
        tests=_RULES + "test_rows_of_another_history_of_the_server_stop_a_table",
    ),
    _mutant(
        "a created table is older",
        "entries before a CREATE TABLE are not applied to it",
        "transitions._anew",
        Insert(
            "return replace(empty, serial=0, at=None)",
            "empty = replace(empty, from_lsn=kept.from_lsn)",
        ),
    ),
    _mutant(
        "a dropped table keeps its rows",
        "a DROP deletes the rows",
        "transitions._after_effect",
        Replace(
            "Transition(forgetting(replace(dropped, signature='', generated=None)), DeltaWork.DROP)",
            "Transition(forgetting(replace(dropped, signature='', generated=None)))",
        ),
    ),
    _mutant(
        "an emptied table keeps its rows",
        "a TRUNCATE deletes the rows",
        "transitions._after_effect",
        Replace("Transition(emptied, DeltaWork.TRUNCATE)", "Transition(emptied)"),
    ),
    _mutant(
        "a replaced table keeps its rows",
        "CREATE OR REPLACE deletes the rows",
        "transitions._after_effect",
        Assign("work", "DeltaWork.NOTHING"),
    ),
    _mutant(
        "CREATE IF NOT EXISTS empties a table",
        "CREATE TABLE IF NOT EXISTS does nothing if there is one",
        "transitions._after_effect",
        If("effect.if_not_exists", "False"),
    ),
    _mutant(
        "a statement makes a table without a place live",
        "a table is live when its folder is in its place",
        "transitions.after_effect",
        Return("_after_effect(name, record, effect, entry, now)"),
    ),
    _mutant(
        "a table without a place stays live",
        "a table is live when its folder is in its place",
        "transitions.place_taken",
        If("not isinstance(state, CatchingUp)", "True"),
    ),
    _mutant(
        "retry skips the entry",
        "a stopped table goes on at the entry that could not be applied",
        "transitions.stopped",
        Replace(
            "replace(record, state=state, reason=reason, from_lsn=before)",
            "replace(record, state=state, reason=reason, from_lsn=failed)",
        ),
    ),
    _mutant(
        "a stopped replay loses its copy",
        "a table that is stopped during the replay of its copy keeps the copy",
        "transitions.stopped",
        Assign("copy", "None"),
    ),
    _mutant(
        "a table behind a gap is complete",
        "a table is not complete behind a gap of the log",
        "transitions.after_gap",
        Replace("Live(complete=False)", "Live()"),
    ),
    _mutant(
        "an unknown table is complete",
        "a table that is older than the mirror lacks rows",
        "transitions.unknown_rows",
        Replace("Live(complete=False)", "Live()"),
    ),
    _mutant(
        "a table that is taken in is complete",
        "a table that was left out lacks changes",
        "transitions.taken_in",
        Return("replace(record, state=Live())"),
    ),
    _mutant(
        "an excluded table goes on",
        "a table that the settings leave out is not applied",
        "mirror.Mirror._repaired",
        Replace("left_out(record, state.read_to)", "record"),
    ),
    _mutant(
        "a stopped table forgets what it has left",
        "after a start a table that waits has left all entries up to the watermark",
        "mirror.Mirror._repaired",
        Drop("state.leave(after, state.read_to)"),
    ),
    _mutant(
        "an entry is left silently",
        "a table is live again when nothing is left that was left",
        "tasks.step_task.StepTask.go",
        Drop("state.leave(record, work.lsn)"),
    ),
    _mutant(
        "the entry that fails is left silently",
        "a table is live again when nothing is left that was left",
        "tasks.step_task.StepTask._fault",
        Drop("state.leave(record, work.lsn)"),
    ),
    _mutant(
        "says for ever that it fails",
        "a table that has recovered says so",
        "retries.recovered",
        Return("record"),
        tests=f"{_PLAYS}[failed_steps]",
    ),
    _mutant(
        "recovers what does not fail",
        "only a table that says that it fails recovers",
        "retries.recovered",
        Replace("record.state.failing is None", "False"),
    ),
    _mutant(
        "recovers in memory",
        "that a table has recovered is stored",
        "tasks.step_task.StepTask._finish",
        Replace(
            "state.save(recovered(record), why='its steps are applied again')",
            "state.hold(recovered(record))",
        ),
        tests=_RULES + "test_that_a_table_has_recovered_is_stored",
    ),
)

_GENERATED = (
    _mutant(
        "a generated column keeps its values",
        "a table is copied if the server computes a generated column again",
        "schema.recomputed._depends",
        Return("False"),
        tests=f"{_RECOMPUTED}test_a_table_is_copied_if_a_generated_column_is_computed_again",
        package="spark_sink.mirror",
    ),
    _mutant(
        "generated columns that are not known are none",
        "where the generated columns are not known, no column with another type is followed",
        "schema.recomputed.recomputed",
        If("generated is None", "False"),
        tests=f"{_RECOMPUTED}test_where_generated_columns_are_not_known_types_stay",
        package="spark_sink.mirror",
    ),
    _mutant(
        "a new column for a generated one",
        "the policy new_column copies a table whose generated columns are computed again",
        "transitions._altered",
        Replace("not change.others", "True"),
        tests=f"{_RECOMPUTED}test_a_table_is_copied_if_a_generated_column_is_computed_again",
    ),
    _mutant(
        "an omitted column is added",
        "a statement on a column that the policy leaves out does not give the mirrored table this column",
        "transitions._altered",
        Replace("now.policy.omitted", "()"),
        tests=f"{_OMITTED}test_a_transition_leaves_out_the_columns_of_the_policy",
    ),
    _mutant(
        "an omitted column has values",
        "a column whose values the mirror left out needs a copy if it gets another name",
        "schema.alterations._altered",
        If("isinstance(before, OmittedColumn)", "False"),
        tests=f"{_OMITTED}test_a_statement_that_gives_values_of_an_omitted_column_needs_a_copy",
        package="spark_sink.mirror",
    ),
    _mutant(
        "omitted columns have no place",
        "a statement may name the place of a column that the policy leaves out",
        "schema.signature.Signature.all_columns",
        Return("list(self.columns)"),
        tests=f"{_OMITTED}test_a_statement_is_followed_without_the_omitted_columns",
        package="spark_sink.mirror",
    ),
    _mutant(
        "the place of omitted columns is not learned",
        "rows tell the place of the columns that the policy leaves out",
        "table_work._ordered",
        Return("signature"),
        tests=f"{_OMITTED}test_rows_tell_the_place_of_the_omitted_columns",
    ),
    _mutant(
        "a computed column of an omitted one keeps its values",
        "a table is copied if a column is computed again from a column that the policy leaves out",
        "schema.recomputed.recomputed",
        Replace("dict.fromkeys(redefined, True)", "{}"),
        tests=f"{_OMITTED}test_a_column_that_is_computed_from_an_omitted_one_needs_a_copy",
        package="spark_sink.mirror",
    ),
    _mutant(
        "generated columns behind a gap",
        "changes that were purged may have made generated columns",
        "transitions.after_gap",
        Replace(
            "replace(record, epoch=epoch, reason=reason, from_lsn=entry.lsn, generated=None)",
            "replace(record, epoch=epoch, reason=reason, from_lsn=entry.lsn)",
        ),
        tests=f"{_RECOMPUTED}test_after_doubt_the_generated_columns_are_not_known",
    ),
)

_FACTS = (
    _mutant(
        "a text under any collation",
        "a text that collation_connection may change is not followed",
        "schema.session_facts.StatementFacts.literal",
        If("not kept", "False"),
        tests=f"{_SESSION}test_a_fact_that_the_log_does_not_hold",
        package="spark_sink.mirror",
    ),
    _mutant(
        "bytes of any character set",
        "the bytes of a text are those of collation_connection",
        "schema.session_facts.StatementFacts.literal_bytes",
        If("not self.literal(text).isascii() or between in _OTHER_BYTES", "False"),
        tests=f"{_SESSION}test_a_fact_that_the_log_does_not_hold",
        package="spark_sink.mirror",
    ),
    _mutant(
        "a setting that is not known",
        "a statement with a setting that is not known is not followed",
        "schema.session_facts.StatementFacts.require_whole",
        If("code is not None", "False"),
        tests=f"{_SESSION}test_a_fact_that_the_log_does_not_hold",
        package="spark_sink.mirror",
    ),
    _mutant(
        "an empty text is a text",
        "with EMPTY_STRING_IS_NULL an empty text is NULL",
        "schema.fills._is_null",
        Return("default.kind is LiteralKind.NULL"),
        tests=f"{_SESSION}test_what_a_literal_means",
        package="spark_sink.mirror",
    ),
    _mutant(
        "NULL in a TIMESTAMP",
        "NULL in a TIMESTAMP that becomes NOT NULL may become the present time",
        "schema.signature._source",
        Assign("is_timestamp", "False"),
        tests="tests/mirror_rules/test_signature.py::"
        "test_null_in_a_timestamp_may_become_the_present_time",
        package="spark_sink.mirror",
    ),
)

_RENAMES = (
    _mutant(
        "the name of now",
        "a table is found by the name that it had at the entry",
        "records.name_at",
        Return("record.name"),
    ),
    _mutant(
        "the newest table of a name",
        "a table that had the name at the entry comes before one that has it now",
        "records.find_record",
        Replace(
            "(has_former, not record.is_dropped, lsn <= record.from_lsn, record.serial)",
            "(not record.is_dropped, has_former, lsn <= record.from_lsn, record.serial)",
        ),
        tests=_RULES + "test_a_history_compares_with_the_table_that_had_the_name",
    ),
    _mutant(
        "renames at the same time",
        "the renames of a statement are executed one after the other",
        "renames.names_after",
        Return("{name: dict(pairs).get(name, name) for name in names}"),
    ),
    _mutant(
        "a reason keeps the former name",
        "the commands in the reason of a renamed table name it as it is named now",
        "records.renamed",
        Replace("naming(record.reason, old, new)", "record.reason"),
        tests=f"{_NAMED}test_the_reason_of_a_table_follows_its_rename",
    ),
    _mutant(
        "a fault names a former name",
        "the fault of an entry before a RENAME names the table as it is named now",
        "transitions.faulted",
        Drop("text = remedies.naming(text, then, record.label)"),
        tests=f"{_NAMED}test_a_fault_of_an_entry_before_a_rename_names_the_table_of_now",
    ),
    _mutant(
        "tables do not cross",
        "a table that gets an excluded name leaves the mirror, and one that loses it comes",
        "renames.crossings",
        Return("Crossings((), ())"),
    ),
    _mutant(
        "a RENAME that was lost",
        "a RENAME that was not executed when it was due stops the tables that it concerns",
        "tasks.replay_task._is_missed",
        Return("False"),
        tests=_LOST + "test_a_rename_that_was_lost_when_it_was_due_stops_a_replay",
    ),
    _mutant(
        "an excluded table is revived",
        "a dropped table that the settings leave out is not copied",
        "mirror.Mirror._after_request",
        If("self.state.options.excluded(record.name)", "False"),
        tests=_RULES + "test_a_dropped_table_is_not_copied_that_the_settings_leave_out",
    ),
    _mutant(
        "an excluded table is asked for",
        "a table that the settings leave out is not made by a request",
        "mirror.Mirror._requests",
        If("own is None and state.options.excluded(name)", "False"),
    ),
    _mutant(
        "a taken place is no failure",
        "a drain ends without a table whose place is taken",
        "tasks.replay_task.ReplayTask._move",
        Drop("self.failures += 1"),
    ),
    _mutant(
        "waits for its former place",
        "a table goes on when it has got another place",
        "tasks.replay_task.ReplayTask.watch",
        If("record.folder != self._taken", "False"),
        tests=_RULES + "test_a_table_that_waits_for_its_place_goes_on_when_it_is_renamed",
    ),
    _mutant(
        "a replay between the steps of a move",
        "a replay waits until a RENAME has moved the table",
        "tasks.replay_task.ReplayTask.go",
        Replace("not self.state.is_free(self.table_id)", "False"),
        tests=_RULES + "test_a_replay_waits_until_a_rename_has_moved_the_table",
    ),
    _mutant(
        "a table that was put back gets the name of another one",
        "no record is made for a name that another table got by a later RENAME",
        "tasks.step_task.StepTask.go",
        If("state.is_named_later(self.name, work.lsn)", "False"),
        tests=_RULES + "test_a_lost_table_that_is_put_back_does_not_get_the_name_of_another_one",
    ),
    _mutant(
        "a table whose folder may lie elsewhere",
        "a history reads no table whose move has not ended",
        "tasks.history_task.HistoryTask._compare",
        If("all(map(self.state.is_free, used))", "any(map(self.state.is_busy, used))"),
        tests=_RULES + "test_a_history_waits_while_it_is_not_known_where_its_table_lies",
    ),
    _mutant(
        "a copy survives a RENAME",
        "a RENAME begins a copy again, because rows are read by name",
        "renames.records_after",
        If("in_copy(record, lsn)", "False"),
    ),
    _mutant(
        "a dropped table keeps the folder",
        "a dropped table loses the folder that another one gets",
        "renames.records_after",
        Assign("lost", "()"),
        tests=_RULES + "test_a_dropped_table_loses_the_folder_that_another_one_gets",
    ),
    _mutant(
        "a table in the way",
        "a table whose name another one gets does not exist",
        "renames.names_in_the_way",
        Assign("got", "set()"),
        tests=_RULES + "test_a_table_that_another_one_gets_the_name_of_is_dropped",
    ),
    _mutant(
        "the rows of a table in the way stay",
        "the rows of a table that does not exist any longer are deleted",
        "tasks.rename_task.RenameTask._clear_the_way",
        Assign("tables[name]", "replace(tables[name], state=Dropped(), folder='')"),
        tests=_RULES + "test_a_table_in_the_way_leaves_no_rows",
    ),
    _mutant(
        "a dropped table keeps the place of one without rows",
        "a dropped table loses its place when another one gets its name",
        "renames.records_after",
        Assign("taken", "{record.folder for record in changed if record.folder}"),
        tests="tests/mirror_rules/test_control.py::"
        "test_a_dropped_table_loses_its_place_to_one_without_rows",
    ),
    _mutant(
        "a table of a later time is doubled",
        "a name has one record that is not dropped",
        "tasks.rename_task.RenameTask._without_double",
        Return("record"),
    ),
    _mutant(
        "a RENAME of later tables",
        "a RENAME that comes again is not applied to tables of a later time",
        "tasks.rename_task.RenameTask._tables",
        Assign("self._later", "set()"),
    ),
    _mutant(
        "rows that were deleted for a rename",
        "a table whose rows were deleted when it was to leave is copied if it stays",
        "tasks.rename_task.RenameTask._changed",
        Drop("self._require_rows(tables)"),
        tests=_RULES + "test_a_table_whose_rows_were_deleted_to_leave_is_copied_if_it_stays",
    ),
    _mutant(
        "folders stay",
        "folders move after the records say so",
        "tasks.rename_task.RenameTask._move",
        If("self._moved or not moving", "True"),
    ),
    _mutant(
        "a move that is refused holds up others",
        "a table whose place is taken does not hold up the others",
        "tasks.rename_task.RenameTask._move",
        Drop("self._without_place |= answer.refused.keys()"),
    ),
    _mutant(
        "a repair that is refused holds up others",
        "a table whose place is taken does not hold up the others",
        "tasks.log_tasks.RepairTask.go",
        Drop("self._without_place |= answer.refused.keys()"),
        tests=_RULES + "test_a_repair_goes_on_without_a_table_whose_place_is_taken",
    ),
    _mutant(
        "nothing is repaired",
        "folders that a crash has left on their way are moved",
        "tasks.log_tasks.RepairTask.go",
        If("self._tried", "True"),
    ),
    _mutant(
        "other works after a move that failed",
        "until a move is answered nothing but the same move may follow",
        "tasks.folder_move.begin_move",
        Drop("state.unsure.update(ids)"),
        tests=_RULES + "test_a_statement_waits_for_the_end_of_a_move",
    ),
    _mutant(
        "two tables in one folder",
        "a folder is moved to a place when the other table has left it",
        "tasks.folder_move.must_wait",
        Return("False"),
        tests=_RULES + "test_a_copy_waits_until_another_table_has_left_its_place",
    ),
)

_COPIES = (
    _mutant(
        "a copy begins in the past",
        "S is not before the record's time",
        "tasks.copy_task.CopyTask._creating",
        If("self._begin[0] < record.from_lsn", "False"),
    ),
    _mutant(
        "a copy begins before lost entries",
        "S is behind the newest entries of the log, also if they are lost",
        "tasks.copy_task.CopyTask._creating",
        If("last_lsn(end.append) < self.state.read_to", "False"),
        tests=_LOST + "test_a_copy_begins_behind_the_newest_entries_if_they_are_lost",
    ),
    _mutant(
        "a copy on an older copy",
        "what an earlier copy has left is deleted first",
        "tasks.copy_task.CopyTask._creating",
        If("self._cleared", "False"),
    ),
    _mutant(
        "a copy deletes the rows of an earlier one",
        "an earlier copy moves to the table's place before its folder is needed again",
        "tasks.copy_task.CopyTask._creating",
        If("record.move is not None and record.move.source == copy_folder(self.table_id)", "False"),
        tests=_RULES + "test_a_copy_that_has_not_moved_is_not_deleted_by_the_next_one",
    ),
    _mutant(
        "a copy begins before the queue is at S",
        "entries up to S are executed before a copy begins",
        "tasks.copy_task.CopyTask._creating",
        If("self.state.dealt_with(record.name) < lsn", "self.state.is_busy(self.table_id)"),
    ),
    _mutant(
        "a replay begins before the queue is at R",
        "entries up to R are executed or left before a replay begins",
        "tasks.copy_task.CopyTask._passed",
        If("self.state.dealt_with(record.name) < lsn", "self.state.is_busy(self.table_id)"),
    ),
    _mutant(
        "the log has not passed R",
        "a replay goes on to the end of the log that holds what was read",
        "tasks.copy_task._first_behind",
        If("contains_executed(position, executed)", "position is not None"),
    ),
    _mutant(
        "a copy of another time",
        "a copy counts if nothing has begun it again",
        "tasks.copy_task.CopyTask._copying",
        If("now.state != copying", "not answer.complete"),
    ),
    _mutant(
        "half a copy",
        "a copy that was stopped does not count",
        "tasks.copy_task.CopyTask._copying",
        If("now.state != copying", "now.state != copying"),
    ),
    _mutant(
        "a copy that nothing needs",
        "a copy ends when its table has another state",
        "tasks.copy_task.CopyTask.watch",
        If("not is_same or self.state.stopping", "self.state.stopping"),
    ),
    _mutant(
        "a copy while the job ends",
        "a copy ends when the job ends",
        "tasks.copy_task.CopyTask.watch",
        If("not is_same or self.state.stopping", "not is_same"),
    ),
    _mutant(
        "a merged copy is exact",
        "rows of before R may be in a copy that is no snapshot",
        "tasks.copy_task.CopyTask._passed",
        Assign("goal", "Live(exact_from=record.from_lsn)"),
    ),
    _mutant(
        "transactions of the snapshot again",
        "the changes that the snapshot of a table without a key shows are left out",
        "tasks.replay_task.ReplayTask._apply",
        If("self.record.state.exact", "False"),
    ),
    _mutant(
        "live before it is in its place",
        "a copy is live when its folder is in its place",
        "tasks.replay_task._in_place",
        Replace("CatchingUp(goal, passed)", "goal"),
    ),
    _mutant(
        "live before it has caught up",
        "a table is live again when nothing is left that was left",
        "tasks.replay_task.ReplayTask._read_on",
        Replace("self.state.left.get(self.table_id, 0)", "0"),
    ),
    _mutant(
        "live before its queue has caught up",
        "a statement that settles the table comes first",
        "tasks.replay_task.ReplayTask._is_dealt_with",
        Return("True"),
        tests=_RULES + "test_a_replay_waits_for_a_statement_whose_record_is_not_written",
    ),
    _mutant(
        "a fault of a stopped table drops its entry",
        "an entry with a fault is left in the log, also for a table that is stopped",
        "tasks.step_task.StepTask._fault",
        If("record is not None", "record is not None and record.is_live"),
        tests=_FAULTS
        + "test_a_statement_of_a_stopped_table_is_left_in_the_log_if_its_files_are_damaged",
    ),
    _mutant(
        "a damaged dropped table is made again silently",
        "a dropped table stops if its files are damaged when it is made again",
        "tasks.step_task._makes_table",
        Return("False"),
        tests=_FAULTS + "test_a_dropped_table_stops_if_its_files_are_damaged_when_it_is_made_again",
    ),
    _mutant(
        "a refused move stops the table",
        "a move that fails is tried again, whatever its failure",
        "tasks.replay_task.ReplayTask.failed",
        Replace("failure.fault is not None and not self._moves", "failure.fault is not None"),
        tests=_FAULTS + "test_a_move_that_is_refused_is_tried_again",
    ),
    _mutant(
        "a replay stops a table that was settled meanwhile",
        "a failure of a replay changes only a table that is replayed",
        "tasks.replay_task.ReplayTask.failed",
        If("CatchingUp", "False"),
        tests=_FAULTS + "test_a_read_that_fails_does_not_stop_a_table_that_was_emptied_meanwhile",
    ),
    _mutant(
        "a fault is of an earlier work",
        "a fault of a work that applies nothing stops the table at its next entry",
        "tasks.replay_task.ReplayTask.go",
        Drop("self._work, self._moves = None, False"),
        tests=_FAULTS + "test_a_replay_stops_at_a_fault_behind_the_entries_of_an_earlier_step",
    ),
    _mutant(
        "a copy goes on over a TRUNCATE",
        "a statement that makes the table anew before R begins a copy again",
        "tasks.replay_task._ends_copy",
        Replace("isinstance(effect, DropTable | TruncateTable)", "False"),
        tests=_LOST + "test_a_copy_begins_again_if_it_meets_a_truncate_that_was_lost",
    ),
    _mutant(
        "a replay ends at a DROP that was lost",
        "a table is copied if its replay meets a DROP that its queue has passed",
        "tasks.replay_task._is_drop",
        Return("False"),
        tests=_LOST + "test_a_table_is_copied_if_its_replay_meets_a_drop_that_was_lost",
    ),
    _mutant(
        "stops at what was lost before a RENAME",
        "entries that are lost concern only a table that has not passed them",
        "tasks.replay_task.ReplayTask._lost",
        If("cursor", "False"),
        tests=_LOST + "test_what_is_lost_before_a_rename_does_not_stop_the_table_behind_it",
    ),
    _mutant(
        "a RENAME waits for damaged files",
        "a RENAME stops a table whose files are damaged, and renames the others",
        "tasks.rename_task.RenameTask.failed",
        If("asked is not None", "False"),
        tests=_FAULTS + "test_a_rename_stops_only_the_table_whose_files_are_damaged",
    ),
    _mutant(
        "a lost DROP is certain",
        "a dropped table may exist again behind lost entries",
        "tasks.log_tasks.ReadTask._leave_out",
        Replace("state.names(dropped=True)", "state.names()"),
        tests=_LOST + "test_a_table_that_may_exist_is_not_taken_for_a_new_one",
    ),
    _mutant(
        "a dropped table that was left out does not exist",
        "a dropped table may exist again if the settings have left out its name",
        "mirror.Mirror._repaired",
        Replace("unsure(record)", "record"),
        tests=_LOST + "test_a_table_that_may_exist_is_not_taken_for_a_new_one",
    ),
    _mutant(
        "an unknown table gets no name",
        "a dropped table may exist again if a table without a record got its name",
        "renames.names_of_unknown",
        Return("[]"),
        tests=_LOST + "test_a_table_that_may_exist_is_not_taken_for_a_new_one",
    ),
    _mutant(
        "an unknown table gets a name that another table had since a drop",
        "a dropped table may exist again if another table had its name, and then an unknown one got it",
        "tasks.rename_task.RenameTask._dropped_earlier",
        If("is_earlier and record.table_id not in changed", "False"),
        tests=_LOST + "test_a_table_that_may_exist_is_not_taken_for_a_new_one",
    ),
    _mutant(
        "steps wait for moves",
        "tables whose move fails do not keep other tables waiting",
        "mirror_state.MirrorState.without_place",
        Return("[]"),
        tests=_FAULTS + "test_tables_whose_moves_fail_do_not_keep_others_waiting",
    ),
    _mutant(
        "a drain waits for a move that fails",
        "a drain ends without a table whose move has failed several times",
        "mirror.Mirror.at_rest",
        Assign("counts", "list(state.counts.values())"),
        tests=_FAULTS + "test_a_drain_ends_without_a_table_whose_move_fails",
    ),
    _mutant(
        "a request trusts what was seen",
        "a request looks at the files again",
        "mirror.Mirror._answer_requests",
        Drop("self.state.doubt(record.table_id)"),
        tests=_FAULTS + "test_a_request_looks_at_the_files_again",
    ),
    _mutant(
        "a RENAME that is read late",
        "a RENAME does not change the name that a later one gave",
        "tasks.rename_task.RenameTask._tables",
        Assign("missed", "set()"),
        tests=_LOST + "test_a_rename_that_is_read_after_a_later_one_does_not_change_names",
    ),
    _mutant(
        "an entry is of a table that was dropped before",
        "of two dropped tables, the one that was dropped later had the entry between",
        "records.find_record",
        Replace("lsn <= record.from_lsn", "True"),
        tests="tests/mirror_rules/test_control.py::test_an_entry_is_of_the_table_that_was_dropped_behind_it",
    ),
    _mutant(
        "a replay goes back",
        "a replay leaves out entries that its table has passed while it read the log",
        "tasks.replay_task.ReplayTask._forward",
        Drop("self._pass(record.from_lsn)"),
        tests=_RULES + "test_a_replay_does_not_go_back_behind_a_rename_that_its_table_has_passed",
    ),
    _mutant(
        "a replay of one name",
        "a replay reads the entries of all names that the table had",
        "tasks.replay_task.ReplayTask._read",
        Assign("names", "[record.name]"),
    ),
    _mutant(
        "a copy goes on over a change of its columns",
        "a change of the columns before R begins a copy again",
        "tasks.replay_task._copy_ends",
        Return("False"),
        tests=_LOST + "test_a_change_of_the_columns_that_was_lost_begins_a_copy_again",
    ),
    _mutant(
        "a place is asked for once",
        "a table looks again whether its place is free",
        "tasks.replay_task.ReplayTask.go",
        Drop("self._move(record)"),
    ),
)

_HISTORIES = (
    _mutant(
        "a history runs ahead of its table",
        "a history waits for a table that is not live",
        "tasks.history_task.HistoryTask._waits",
        Return("False"),
    ),
    _mutant(
        "a history does not begin empty",
        "a history of a table that was created has every version",
        "tasks.history_task.history_of",
        If("is_new and table.copied_at != since", "False"),
        tests=_RULES + "test_a_history_of_a_new_table_has_every_version",
    ),
    _mutant(
        "a copy where its history stands",
        "a history is compared with a copy of the table that it has reached the entry of",
        "tasks.history_task.HistoryTask._is_copied_here",
        Return("False"),
        tests="tests/mirror_simulation/test_history_rules.py::test_a_history_has_the_rows_of_a_copy_where_it_stands",
    ),
    _mutant(
        "a history is not compared with a copy",
        "behind a copy a history is compared with the table",
        "tasks.history_task._copied_at",
        Return("-1"),
        tests=_RULES + "test_a_history_has_the_rows_that_a_copy_brings_to_a_partial_table",
    ),
    _mutant(
        "a version without a folder",
        "the record names the folder before the history has a version",
        "tasks.history_task.HistoryTask._named",
        Return("True"),
    ),
    _mutant(
        "exact across a copy",
        "rows of before a copy may have versions",
        "tasks.history_task.HistoryTask._execute",
        Replace("exact and rest.entries[0].lsn > copied", "exact"),
    ),
    _mutant(
        "a history keeps deleted rows",
        "a TRUNCATE or a DROP ends all current versions",
        "tasks.history_task.HistoryTask._execute",
        Replace("record.folder", "False"),
    ),
    _mutant(
        "a history does not see statements",
        "a statement that changes rows is followed by a comparison",
        "tasks.history_task._changes_rows",
        Return("False"),
    ),
    _mutant(
        "a request about a history is forgotten",
        "a history that somebody asks for is read again",
        "tasks.history_task.HistoryTask.go",
        If("record.request", "False"),
    ),
)

_DRAINS = (
    _mutant(
        "a drain forgets requests",
        "a drain answers requests before it ends",
        "mirror.Mirror.at_rest",
        Assign("asked", "False"),
        tests=_RULES + "test_a_drain_answers_a_request_before_it_ends",
    ),
    _mutant(
        "a drain ends before its goal",
        "a drain applies everything up to its goal",
        "mirror.Mirror.at_rest",
        Assign("applied", "True"),
    ),
    _mutant(
        "a drain does not store",
        "a drain stores what it has decided before it ends",
        "mirror.Mirror._store_due",
        Return("False"),
    ),
    _mutant(
        "a drain does not wait for copies",
        "a drain makes the copies that wait",
        "mirror.Mirror._will_go_on",
        Return("False"),
        tests=_RULES + "test_a_drain_waits_for_a_copy_that_has_no_turn",
    ),
)

_NAMES = (
    Mutant(
        "names of a statement are not folded",
        "a statement concerns the tables that the server means",
        "binlog.sql.lexer.SqlTokens.name_part",
        Return("self.identifier()"),
    ),
    Mutant(
        "the default database is not folded",
        "a name without a database is in the default database as the server names it",
        "binlog.sql.lexer.SqlTokens.__init__",
        Assign("self.default_database", "statement.database"),
    ),
)

MUTANTS: tuple[Mutant, ...] = (
    *_REQUESTS,
    *_RECORDS,
    *_QUEUES,
    *_LOG,
    *_TABLES,
    *_GENERATED,
    *_FACTS,
    *_RENAMES,
    *_COPIES,
    *_HISTORIES,
    *_DRAINS,
    *_NAMES,
)
