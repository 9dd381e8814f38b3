"""Each rule of dispatching, broken on purpose: one change of one function, which the simulation must notice.

A mutant has a name, the rule that it breaks, the function below `dispatcher` (or the module, for a constant), and the
change; and the tests that must fail, where it takes a log that the simulation hardly ever draws.
"""

# ruff: noqa: E501 - a change of the source is easier to read in one line

from __future__ import annotations

import ast
from dataclasses import dataclass
from pathlib import Path

from tests.simulation.changes import (
    Assign,
    Change,
    Drop,
    If,
    Insert,
    Remove,
    Replace,
    Return,
    find_function,
)

PACKAGE = Path(__file__).resolve().parents[2] / "dispatcher"


@dataclass(frozen=True, slots=True)
class Mutant:
    name: str
    rule: str
    function: str
    change: Change
    tests: str = ""

    @property
    def module(self) -> str:
        """The module's name below `dispatcher`."""
        return ".".join(self._names[0])

    @property
    def source(self) -> str:
        return PACKAGE.joinpath(*self._names[0]).with_suffix(".py").read_text(encoding="utf-8")

    def broken(self) -> str:
        """The module's source with the change. Raises StaleError if it does not fit."""
        tree = ast.parse(self.source)
        self.change.apply(find_function(tree, self._names[1]))
        return ast.unparse(ast.fix_missing_locations(tree))

    @property
    def _names(self) -> tuple[list[str], list[str]]:
        """The names that lead to the module, and those that lead to the function in it."""
        names = self.function.split(".")
        for count in range(1, len(names) + 1):
            if PACKAGE.joinpath(*names[:count]).with_suffix(".py").is_file():
                return names[:count], names[count:]
        raise LookupError(f"dispatcher has no module of {self.function}")


MUTANTS: tuple[Mutant, ...] = (
    # -- attaching and merging -----------------------------------------------------------------------------------
    Mutant(
        "attaches without containment",
        "1: attaches only if the queued set contains what the dump has read",
        "dispatch.client.assignment.Assignment._may_join_stream",
        Assign("has_all", "True"),
    ),
    Mutant(
        "containment the wrong way round",
        "1: attaches only if the queued set contains what the dump has read",
        "dispatch.history.attachment.has_all_read",
        Replace("queued.gtids.contains(read.gtids)", "read.gtids.contains(queued.gtids)"),
    ),
    Mutant(
        "files compared the wrong way round",
        "1: attaches only if the queued position is not before what the dump has read",
        "dispatch.history.attachment.has_all_read",
        Replace("read.seq <= queued.seq", "read.seq >= queued.seq"),
    ),
    Mutant(
        "attaches by the acknowledged set",
        "1: the queued set counts, not the acknowledged one",
        "dispatch.client.assignment.Assignment._may_join_stream",
        Assign("has_all", "has_all_read(queue.mode, read, queue.acknowledged)"),
    ),
    Mutant(
        "queues what it has executed",
        "1: a transaction is queued iff it is not in the queued set",
        "dispatch.queue.queue_contents.QueueContents.push",
        Assign("already_executed", "None"),
    ),
    Mutant(
        "distance does not matter",
        "1: attaches only if it is near in the log",
        "dispatch.client.assignment.Assignment._may_join_stream",
        Replace("distance <= self._limits.merge_bytes_max", "True"),
    ),
    Mutant(
        "never near",
        "1: attaches if it is near in the log",
        "dispatch.client.assignment.Assignment._may_join_stream",
        Replace("distance <= self._limits.merge_bytes_max", "distance <= 0"),
    ),
    Mutant(
        "distance within a file only",
        "1: the distance counts whole files",
        "dispatch.history.attachment.ServerFiles.distance",
        Replace(
            "sum((self._sizes[number] for number in numbers)) - start + end", "abs(end - start)"
        ),
    ),
    Mutant(
        "merges inside a transaction",
        "1: merges at a transaction boundary",
        "dispatch.client.assignment.Assignment._may_join_stream",
        Replace("has_transaction(queue.queued, dispatcher.open_transaction)", "True"),
    ),
    Mutant(
        "forgets that the dump is inside a transaction",
        "1: merges at a transaction boundary",
        "dispatch.connection.dispatcher.Dispatcher._read_after",
        Assign("self.open_transaction", "None"),
    ),
    Mutant(
        "moves with half a transaction",
        "1: the open part is rolled back when a consumer is detached",
        "dispatch.connection.dispatcher.Dispatcher.detach",
        Drop("consumer.queue.rollback()"),
    ),
    Mutant(
        "reconnects with half a transaction",
        "7: the open part is rolled back when the connection is lost",
        "dispatch.connection.dispatcher.Dispatcher._roll_back",
        Drop("consumer.queue.rollback()"),
    ),
    Mutant(
        "never merges",
        "1: two dispatchers merge",
        "dispatch.client.dispatcher_set.DispatcherSet.settle",
        If("self.dispatchers", "False"),
    ),
    Mutant(
        "asks once whether two may merge",
        "1: two dispatchers merge",
        "dispatch.client.assignment.Assignment.merge_candidates",
        Replace("self._states.get(d.number) != state", "d.number not in self._states"),
    ),
    Mutant(
        "attaches to a dump that began after it was detached",
        "6: a login shows a waiting consumer whether the log was reset",
        "dispatch.client.assignment.Assignment.may_attach",
        If("consumer.detached_at", "False"),
    ),
    Mutant(
        "evicts the queue of a failed consumer",
        "4: the queue of a failed consumer is not evicted, for nothing would be read again",
        "dispatch.client.backpressure.Backpressure._active",
        Return("list(self._consumers.values())"),
        tests="tests/dispatch/client/test_backpressure.py",
    ),
    Mutant(
        "one dispatcher each",
        "1: near consumers share a dump from the start",
        "dispatch.client.assignment.Assignment.may_attach",
        If("Phase.CONNECTING", "dispatcher.phase is Phase.CONNECTING and not dispatcher.attached"),
    ),
    Mutant(
        "one dispatcher for all",
        "1: far consumers get dumps of their own",
        "dispatch.client.client.Client._logged_in",
        Drop("self._dispatcher_set.detach_distant(dispatcher, now)"),
    ),
    Mutant(
        "dumps from the first consumer's position",
        "1: a dump begins at the intersection",
        "dispatch.history.attachment.dump_start",
        Replace("gtids.intersection(executed.gtids)", "gtids"),
    ),
    Mutant(
        "dumps from the union",
        "1: a dump begins at the intersection",
        "dispatch.history.attachment.dump_start",
        Replace("gtids.intersection", "gtids.union"),
    ),
    Mutant(
        "dumps from the last position",
        "1: a dump begins at the position furthest behind",
        "dispatch.history.attachment.dump_start",
        Replace(
            "min(positions, key=lambda executed: executed.seq)",
            "max(positions, key=lambda executed: executed.seq)",
        ),
    ),
    Mutant(
        "dumps from inside a transaction",
        "1: positions lie between transactions",
        "dispatch.connection.dispatcher.Dispatcher._read_after",
        Drop("if not count: return before"),
    ),
    Mutant(
        "attaches after the server was asked",
        "6: the login checks each consumer that the dump begins with",
        "dispatch.client.assignment.Assignment._may_join_login",
        Replace("dispatcher.login_begun", "False"),
    ),
    Mutant(
        "keeps an empty dispatcher",
        "1: a dispatcher without consumers is retired",
        "dispatch.client.dispatcher_set.DispatcherSet.settle",
        Replace("not d.attached", "d.number > 99"),
    ),
    # -- filter and markers --------------------------------------------------------------------------------------
    Mutant(
        "delivers everything to each consumer",
        "2: a consumer gets its own databases",
        "dispatch.queue.queue_contents.QueueContents.push",
        Replace("self.filter.route_mask(routes)", "self.filter.route_mask(routes) | 1"),
    ),
    Mutant(
        "deals everything to each level consumer",
        "2: a consumer gets its own databases",
        "binlog.stream.lanes.Lanes.learn",
        Replace("filter_.route_mask(routes)", "filter_.route_mask(routes) | 1"),
    ),
    Mutant(
        "a detached consumer moves with the level ones",
        "1: only a consumer that gets a batch moves behind it",
        "dispatch.connection.dispatcher.Dispatcher.detach",
        Drop("consumer.queue.leave()"),
    ),
    Mutant(
        "counts as level before it has caught up",
        "1: only a consumer at the dispatcher's position is level",
        "dispatch.connection.dealing.Dealer.deal",
        If("queue.queued is stand.executed", "True"),
    ),
    Mutant(
        "level consumers stay where they are",
        "2: a batch moves the position of a consumer that gets nothing of it",
        "dispatch.connection.dealing.Dealer.deal",
        If("is_behind(after, stand.executed)", "False"),
    ),
    Mutant(
        "others' transactions leave no gap",
        "2: a position contains others' transactions before it",
        "dispatch.connection.dealing.Dealer._deal_level",
        Drop("queue.pass_over(gtids)"),
        tests="tests/dispatch/connection/test_dealing.py",
    ),
    Mutant(
        "a level consumer without room moves on",
        "3: a transaction without room is read again",
        "dispatch.connection.dealing.Dealer._deal_level",
        Drop("consumer.queue.leave()"),
        tests="tests/dispatch/connection/test_dealing.py",
    ),
    Mutant(
        "a stream keeps the epochs of the one before",
        "6: a transaction has the epoch of its history",
        "dispatch.connection.dealing.Dealer.begin",
        Drop("self._set_level([])"),
        tests="tests/dispatch/connection/test_dealing.py",
    ),
    Mutant(
        "level consumers are not told of a new file",
        "6: a position in a file that was replaced is noticed",
        "dispatch.connection.dealing.Dealer._tell_level",
        Drop("queue.files.read(file, created)"),
        tests="tests/dispatch/connection/test_dealing.py",
    ),
    Mutant(
        "keeps what a crash has cut off",
        "2: a transaction without its end is not delivered",
        "binlog.stream.copying.roll_back_aborted",
        Drop("log.rollback()"),
        tests="tests/binlog/stream/test_consumer_log.py",
    ),
    Mutant(
        "forgets what it does not know of a savepoint",
        "2: what is undone is not delivered",
        "binlog.stream.consumer_log.ConsumerLog.answer",
        Replace("Savepoint(self.committed, 0, 0, 0)", "self._savepoint()"),
        tests="tests/dispatch/connection/test_dealing.py",
    ),
    Mutant(
        "covered passes what is queued for the reader",
        "2: covered moves over markers only",
        "dispatch.queue.queue_contents.QueueContents.covered",
        Return("self.queued"),
    ),
    Mutant(
        "acknowledges all that is queued",
        "2: covered moves over markers only",
        "dispatch.queue.queue_contents.QueueContents.covered_after",
        If("self._index", "True"),
    ),
    Mutant(
        "a stored acknowledgement counts only as far as the queue still knows",
        "2: the acknowledged position never goes back",
        "dispatch.queue.queue.Queue.acknowledge",
        If("executed.seq < position.seq", "False"),
        tests="tests/dispatch/client/test_client.py",
    ),
    Mutant(
        "markers are not stored",
        "2: a quiet consumer's progress is stored",
        "dispatch.client.client.Client._store_progress",
        Assign("advanced", "[]"),
    ),
    # -- backpressure --------------------------------------------------------------------------------------------
    Mutant(
        "never full",
        "3: queues are bounded",
        "dispatch.queue.queue_contents.QueueContents.full",
        Replace("spilled or self.log.allocated >= self.bytes_max", "False"),
    ),
    Mutant(
        "reads on while a queue is full",
        "3: queues are bounded",
        "dispatch.client.backpressure.Backpressure._pause_or_resume",
        Assign("halted", "self._memory_exhausted"),
    ),
    Mutant(
        "stays paused",
        "4: reads on when there is room",
        "dispatch.client.backpressure.Backpressure._pause_or_resume",
        Insert("dispatcher.phase = Phase.STREAMING", "return []"),
    ),
    Mutant(
        "no wait budget",
        "4: waits as long as the budget lasts",
        "dispatch.values.wait_budget.WaitBudget.deadline",
        Replace("self._since + self._left_s", "self._since"),
    ),
    Mutant(
        "endless wait budget",
        "4: waits no longer than the budget lasts",
        "dispatch.values.wait_budget.WaitBudget.exhausted",
        Return("False"),
    ),
    Mutant(
        "each wait has a budget of its own",
        "4: a budget, not a limit on each wait",
        "dispatch.values.wait_budget.WaitBudget.end",
        Assign("self._left_s", "self._max_s"),
    ),
    Mutant(
        "the budget is soon full again",
        "4: refilled at 5 % of elapsed time",
        "dispatch.values.wait_budget",
        Assign("REFILL", "0.5"),
    ),
    Mutant(
        "the budget is never refilled",
        "4: refilled at 5 % of elapsed time",
        "dispatch.values.wait_budget",
        Assign("REFILL", "0.0"),
    ),
    Mutant(
        "the budget grows without limit",
        "4: at most max_milliseconds_to_wait_in_binlog_queue",
        "dispatch.values.wait_budget.WaitBudget.begin",
        Assign("self._left_s", "self._left_s + REFILL * (now - self._at)"),
    ),
    Mutant(
        "detaches the only consumer",
        "4: detaches only if others are attached",
        "dispatch.client.backpressure._may_detach",
        Return("consumer.spec.on_queue_full is OnQueueFull.DETACH"),
    ),
    Mutant(
        "detaches a consumer that others are to wait for",
        "4: on_queue_full: wait",
        "dispatch.client.backpressure._may_detach",
        Return("len(dispatcher.attached) > 1"),
    ),
    Mutant(
        "waits for a consumer whose delivery is paused",
        "4: nothing waits for a consumer whose delivery an administrator has paused",
        "dispatch.client.backpressure._others_may_go_on",
        Return("consumer.spec.on_queue_full is OnQueueFull.DETACH"),
        tests="tests/dispatch/client/test_backpressure.py",
    ),
    Mutant(
        "attaches a consumer again whose delivery is paused",
        "4: a consumer whose delivery is paused attaches when it is resumed",
        "dispatch.client.backpressure.Backpressure.may_attach",
        Replace("consumer.delivery_paused and consumer.started", "False"),
        tests="tests/dispatch/client/test_backpressure.py",
    ),
    Mutant(
        "waits again after the third detach",
        "4: no waiting after three detaches in ten minutes",
        "dispatch.values.wait_budget.WaitBudget.deadline",
        If("DETACHES_MAX", "False"),
    ),
    Mutant(
        "never waits after a detach",
        "4: no waiting after three detaches in ten minutes",
        "dispatch.values.wait_budget",
        Assign("DETACHES_MAX", "1"),
    ),
    Mutant(
        "merges at once, again and again",
        "4: merges later after each detach",
        "dispatch.values.wait_budget",
        Assign("MERGE_AFTER_S", "(0.0, 0.0, 0.0, 0.0)"),
    ),
    Mutant(
        "attaches with a full queue",
        "4: attaches again when at most half of the queue is held",
        "dispatch.client.backpressure.Backpressure.may_attach",
        Replace("self._has_room(consumer)", "True"),
    ),
    Mutant(
        "attaches with any room",
        "4: attaches again when at most half of the queue is held",
        "dispatch.queue.queue_contents.QueueContents.has_room",
        Replace("self.log.kept <= self.bytes_max // 2 or self.refetching", "True"),
    ),
    Mutant(
        "pauses for long",
        "4: a pause of 5 s closes the connection",
        "dispatch.client.backpressure",
        Assign("PAUSE_MAX_S", "50.0"),
    ),
    Mutant(
        "stays closed",
        "4: connects again when there is room",
        "dispatch.client.backpressure.Backpressure._pause_or_resume",
        Replace("dispatcher.connect()", "[]"),
    ),
    Mutant(
        "no budget is spent while closed",
        "4: the budget is spent while the connection is closed by backpressure",
        "dispatch.client.backpressure._blocking",
        Return("_full(dispatcher)"),
    ),
    Mutant(
        "no tick when a budget ends",
        "4: waits no longer than the budget lasts",
        "dispatch.client.dispatcher_set.DispatcherSet.wakeups",
        Drop("times.append(deadline)"),
    ),
    Mutant(
        "never evicts",
        "3: max_bytes_in_all_queues",
        "dispatch.client.backpressure.Backpressure.evict",
        If("now < self.evict_at", "largest is not None"),
    ),
    Mutant(
        "no limit on all queues",
        "3: max_bytes_in_all_queues",
        "dispatch.client.backpressure.Backpressure._memory_exhausted",
        Replace("any((consumer.queue.transactions for consumer in self._active()))", "False"),
    ),
    Mutant(
        "waits for room inside a transaction",
        "3: a transaction that has begun is received to its end",
        "dispatch.client.backpressure.Backpressure._memory_exhausted",
        Replace("any((consumer.queue.transactions for consumer in self._active()))", "True"),
    ),
    Mutant(
        "evicts at once",
        "3: a reader gets time to fetch before an eviction",
        "dispatch.client.backpressure.Backpressure.evict",
        Replace("now + EVICT_AFTER_S", "now"),
    ),
    Mutant(
        "keeps consumers with room detached",
        "3: max_bytes_in_all_queues halts no consumer for long",
        "dispatch.client.backpressure.Backpressure._blocks_progress",
        Return("self._memory_exhausted"),
    ),
    Mutant(
        "skips a transaction that does not fit",
        "3: a transaction without room is read again",
        "dispatch.connection.dispatcher.Dispatcher._lacks_room",
        Replace("self.detach(consumer, now)", "consumer.queue.rollback()"),
    ),
    Mutant(
        "waits for room on disk for ever",
        "3: a transaction without room is read again",
        "dispatch.connection.dispatcher.Dispatcher._lacks_room",
        Assign("consumer.attach_after", "now + 1000000000.0"),
    ),
    # -- history -------------------------------------------------------------------------------------------------
    Mutant(
        "accepts a set that was never executed",
        "6: the executed set contains the position",
        "dispatch.history.history_check._check_gtids",
        If("unwritten(view, gtids)", "False"),
    ),
    Mutant(
        "takes what the server is committing for another history",
        "6: the executed set contains the position",
        "dispatch.values.server_view.ServerView.written",
        Return("GtidSet.parse(self.executed)"),
    ),
    Mutant(
        "does not warn of a position that cannot be checked",
        "6: a warning if the purged set equals the position",
        "dispatch.history.history_check.is_purged_up_to",
        Return("False"),
        tests="tests/dispatch/client/test_start_position.py",
    ),
    Mutant(
        "takes a dump to skip nothing that the server is committing",
        "6: all transactions of an anchored position lie before it",
        "dispatch.history.continuity.Continuity.begin",
        Replace("view.written", "GtidSet.parse(view.executed)"),
        tests="tests/dispatch/history/test_continuity.py",
    ),
    Mutant(
        "a reader waits for what the replica is committing",
        "9: a seek goes to a position that the server has",
        "dispatch.client.seeking._check_replica",
        Replace(
            "history_check.unwritten(view, GtidSet.parse(after.gtid))",
            "GtidSet.parse(after.gtid).subtract(GtidSet.parse(view.executed))",
        ),
        tests="tests/dispatch/client/test_seeking.py",
    ),
    Mutant(
        "a consumer waits for what the replica is committing",
        "6: after a failover the replica may catch up",
        "dispatch.client.start_position.lacking_transactions",
        Replace(
            "history_check.unwritten(view, GtidSet.parse(position.gtid))",
            "GtidSet.parse(position.gtid).subtract(GtidSet.parse(view.executed))",
        ),
        tests="tests/dispatch/client/test_start_position.py",
    ),
    Mutant(
        "does not compare creation times",
        "6: the stored file has the stored creation time",
        "dispatch.history.history_check._check_file",
        If("created != now", "False"),
    ),
    Mutant(
        "accepts a purged position",
        "6: purged is a typed error",
        "dispatch.history.history_check._check_gtids",
        If("GtidSet.parse(view.purged).subtract(gtids)", "False"),
    ),
    Mutant(
        "does not wait for the replica",
        "6: after a failover the replica may catch up",
        "dispatch.client.start_position.lacking_transactions",
        If("wait_s", "True"),
    ),
    Mutant(
        "waits for the replica for ever",
        "6: after a failover the replica may catch up",
        "dispatch.client.start_position.lacking_transactions",
        If("wait_s", "False"),
    ),
    Mutant(
        "stays failed though its own server is back",
        "6: a consumer that failed on another server goes on when its own server has its file",
        "dispatch.client.client.Client._server_polled",
        Replace("recovery.recover(consumers, self._surveyed, poll.view, self.label)", "[]"),
    ),
    Mutant(
        "believes a survey from before the consumer failed",
        "6: a consumer that failed on another server is judged by a survey that asked for its position",
        "dispatch.client.recovery.recover",
        If("surveyed.get(consumer.name) != position", "False"),
        tests="tests/dispatch/client/test_recovery.py",
    ),
    Mutant(
        "goes on at a server that lacks its position",
        "6: a consumer that failed on another server goes on when its own server has its file",
        "dispatch.client.recovery.recover",
        Drop("start_position.check(consumer, view)"),
        tests="tests/dispatch/client/test_recovery.py",
    ),
    Mutant(
        "waits for its own server after that has contradicted it",
        "6: a consumer that its own server contradicts stays failed",
        "dispatch.client.recovery.is_elsewhere",
        Replace("position is None or position.server == view.server", "position is None"),
        tests="tests/dispatch/client/test_recovery.py",
    ),
    Mutant(
        "goes on by its set alone",
        "6: a consumer that failed on another server goes on when its own server has its file",
        "dispatch.client.recovery.recover",
        If("start_position.created_of(consumer)", "False"),
        tests="tests/dispatch/client/test_recovery.py",
    ),
    Mutant(
        "goes on at another server",
        "6: a consumer that failed on another server goes on when its own server has its file",
        "dispatch.client.recovery.recover",
        If("position.server != view.server", "position is None"),
        tests="tests/dispatch/client/test_recovery.py",
    ),
    Mutant(
        "goes on after a survey without a login",
        "6: a consumer that failed on another server goes on behind a login",
        "dispatch.client.recovery.recover",
        Drop("consumer.verified = False"),
        tests="tests/dispatch/client/test_recovery.py",
    ),
    Mutant(
        "keeps the other server's files",
        "6: a file belongs to one server",
        "dispatch.client.start_position._continue",
        Replace("queue.move_to(view.server)", "setattr(queue, 'server', view.server)"),
    ),
    Mutant(
        "two servers at a time",
        "a client reads one server at a time",
        "dispatch.client.dispatcher_set.DispatcherSet.follow_server",
        If("other.open", "False"),
    ),
    Mutant(
        "one consumer's error fails all consumers",
        "7: an error fails only the consumer that it concerns",
        "dispatch.client.client.Client._logged_in",
        Replace(
            "dispatcher.fail(consumer, recovery.explained(consumer, view, error), now)",
            "[x for each in [*dispatcher.attached] for x in dispatcher.fail(each, error, now)]",
        ),
    ),
    Mutant(
        "skips what was purged unasked",
        "on_purged: fail",
        "dispatch.client.start_position.establish",
        Assign("skips", "True"),
    ),
    Mutant(
        "stops at what was purged",
        "on_purged: latest",
        "dispatch.client.start_position.establish",
        Assign("skips", "False"),
    ),
    Mutant(
        "skips a gap in the same epoch",
        "on_purged: latest begins a new epoch",
        "dispatch.queue.queue_contents.QueueContents.skip_to",
        Replace("self.epoch + 1", "self.epoch"),
    ),
    Mutant(
        "latest is earliest",
        "a start means one position",
        "dispatch.history.history_check._named",
        Replace("end_of_log(view)", "make_executed(view.mode, view.purged, view.files[0][0], 4)"),
    ),
    Mutant(
        "forgets files that a late login does not know",
        "1: attaches if it is near in the log",
        "dispatch.client.client.Client._update_files",
        Replace("self.files.update(view, late=late)", "self.files.update(view)"),
    ),
    Mutant(
        "believes each head of a file",
        "6: the head of a file is compared with what was read",
        "dispatch.history.continuity.Continuity.judge",
        If("self.can_ask", "True"),
    ),
    Mutant(
        "enters a file before its creation time is known",
        "6: a position in a file that was replaced is noticed",
        "dispatch.connection.dispatcher.Dispatcher._read_after",
        If(
            "not count and not created and file != before.file and self.continuity.can_ask", "False"
        ),
        tests="tests/dispatch/connection/test_dispatcher.py",
    ),
    Mutant(
        "moves into a file before its head is known",
        "6: no position moves into a file before its head was compared",
        "dispatch.history.continuity.Continuity.judge",
        Replace("HeadVerdict.UNKNOWN", "HeadVerdict.FOLLOWS"),
    ),
    Mutant(
        "does not ask about the previous file",
        "6: without GTIDs the server is asked about the previous file",
        "dispatch.history.continuity.Continuity.judge",
        If("was_open", "False"),
    ),
    Mutant(
        "believes each answer about the previous file",
        "6: the answer is compared with where consumers stood",
        "dispatch.connection.dispatcher.Dispatcher.server_polled",
        If("history_error(view, positions)", "False"),
    ),
    Mutant(
        "a poll of the server compares nothing",
        "6: each poll is compared with where consumers stood",
        "dispatch.client.client.Client._server_polled",
        Insert(
            "self._history.compare(POLL, poll.view, now)",
            "snapshots = self._history._snapshots; snapshots[POLL] = [x for x in snapshots.get(POLL, []) if x.awaits_poll]",
        ),
    ),
    Mutant(
        "dumps beyond the end of a file",
        "6: a file is not shorter than what was read of it",
        "dispatch.history.history_check._check_file",
        If("offset > size", "False"),
    ),
    Mutant(
        "dumps from inside an event",
        "6: an event begins where a consumer goes on",
        "dispatch.history.history_check._check_file",
        If("boundary.whole", "False"),
    ),
    Mutant(
        "does not compare purged GTIDs with a file that is gone",
        "6: what was read of a file is purged with it",
        "dispatch.history.history_check._check_missing_file",
        If("view.purged", "False"),
    ),
    Mutant(
        "a file may follow what was never read",
        "6: the head of a file is compared with what was read",
        "dispatch.history.continuity.Continuity._fits",
        If("read.contains(previous)", "False"),
        tests="tests/dispatch/history/test_continuity.py",
    ),
    Mutant(
        "a file need not follow what was read",
        "6: the head of a file is compared with what was read",
        "dispatch.history.continuity.Continuity._fits",
        Replace("previous.contains(read)", "True"),
        tests="tests/dispatch/history/test_continuity.py",
    ),
    Mutant(
        "a file need not follow what the stream has sent",
        "6: the head of a file is compared with what was read",
        "dispatch.history.continuity.Continuity._fits",
        Replace("previous.contains(read.subtract(self._begun))", "True"),
        tests="tests/dispatch/history/test_continuity.py",
    ),
    Mutant(
        "a MariaDB file may follow anything",
        "6: the head of a file is compared with what was read",
        "dispatch.history.continuity.Continuity._fits",
        Replace("not whole or previous.agrees(read)", "True"),
        tests="tests/dispatch/history/test_continuity.py",
    ),
    Mutant(
        "a login compares nothing of the other dumps",
        "6: each login is compared with where the other dispatchers stood",
        "dispatch.client.client.Client._logged_in",
        Drop("self._history.compare(dispatcher.number, view, now)"),
        tests="tests/dispatch/client/test_client.py",
    ),
    Mutant(
        "dumps before a transaction that was read",
        "6: the transaction at a position was not read before it",
        "dispatch.history.history_check._check_file",
        If("gtids.has(*gtid)", "False"),
        tests="tests/dispatch/history/test_history_check.py",
    ),
    # -- connections ---------------------------------------------------------------------------------------------
    Mutant(
        "does not reconnect",
        "7: a lost connection is made again",
        "dispatch.connection.dispatcher.Dispatcher.reconnect",
        Remove("*self.connect(after_s)"),
    ),
    Mutant(
        "one damaged event too many",
        "7: damage on the way is read again",
        "dispatch.history.retry",
        Assign("DAMAGE_MAX", "1"),
    ),
    # -- readers -------------------------------------------------------------------------------------------------
    Mutant(
        "the first position is not stored",
        "a position is stored before the first delivery",
        "dispatch.client.start_position._in_history",
        Remove("consumer.store_progress()"),
    ),
    Mutant(
        "stored from what is queued",
        "8: what is not acknowledged is delivered again",
        "dispatch.connection.consumer.Consumer.store_progress",
        Replace(
            "Progress(queue.position(queue.acknowledged), position, created)",
            "Progress(*[queue.position(queue.queued)] * 2, created)",
        ),
    ),
    Mutant(
        "restarts at the covered position",
        "2: a reader between acknowledged and covered goes on at covered",
        "dispatch.client.start_position._restore",
        Drop("queue.acknowledged = acknowledged"),
    ),
    Mutant(
        "seeks without detaching",
        "9: a seek attaches anew",
        "dispatch.client.client.Client._move",
        Drop("self._dispatcher_set.detach(consumer, now)"),
    ),
    Mutant(
        "a seek is not stored",
        "9: a seek is stored",
        "dispatch.client.client.Client._move",
        Remove("consumer.store_progress()"),
    ),
    Mutant(
        "believes every position of a reader",
        "6: only a login proves a position that the server is not known to have executed",
        "dispatch.client.client.Client._move",
        Assign("consumer.verified", "True"),
    ),
    Mutant(
        "seeks to a position that the server does not have",
        "9: a seek goes only to a position that the server has",
        "dispatch.client.seeking._target",
        Drop("history_check.check_history"),
    ),
    Mutant(
        "a refused seek detaches",
        "9: a refused seek changes nothing",
        "dispatch.client.client.Client._move_requested",
        Insert(
            "seeking.seek_target(consumer, event.after, event.view, fresh=event.fresh)",
            "self._dispatcher_set.detach(consumer, now)",
        ),
    ),
    Mutant(
        "a failed consumer stays failed after a seek",
        "9: a seek to a position that the server has recovers a failed consumer",
        "dispatch.client.seeking.move",
        Drop("consumer.failed = None"),
    ),
    Mutant(
        "a reload closes connections",
        "a reload does not disturb the others",
        "dispatch.client.client.Client._removed",
        Insert(
            "self._dispatcher_set.detach(self.consumers.pop(event.consumer), now)",
            "consumer = self.consumers.pop(event.consumer); dispatcher = self.dispatchers[consumer.dispatcher]; dispatcher.attached.remove(consumer); return dispatcher.close('reload', now)",
        ),
    ),
)
