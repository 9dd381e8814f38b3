"""Each rule of dispatching, broken on purpose: one text in one file is replaced, and the simulation must miss it.

A mutant has a name, the rule that it breaks, the file below `dispatcher/`, the text that stands there once, and what
stands there instead.
"""

# ruff: noqa: E501 - the texts are those of the source

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[2] / "dispatcher"


@dataclass(frozen=True, slots=True)
class Mutant:
    name: str
    rule: str
    file: str
    old: str
    new: str

    def stands(self) -> int:
        """How often its text stands in the source: once, if it is not stale."""
        return self._source().count(self.old)

    def broken(self) -> str:
        """The source with the replacement."""
        return self._source().replace(self.old, self.new)

    def _source(self) -> str:
        return (PACKAGE / self.file).read_text(encoding="utf-8")


MUTANTS: tuple[Mutant, ...] = (
    # -- riding ----------------------------------------------------------------------------------------------
    Mutant(
        "rides without containment",
        "1: what was read must be contained in what is queued",
        "dispatch/boarding.py",
        "        has_all = contained(queue.mode, read, queue.queued)",
        "        has_all = True",
    ),
    Mutant(
        "containment the wrong way round",
        "1: what was read must be contained in what is queued",
        "dispatch/riding.py",
        "    return queued.gtids.contains(read.gtids)",
        "    return read.gtids.contains(queued.gtids)",
    ),
    Mutant(
        "files compared the wrong way round",
        "1: what was read must be contained in what is queued",
        "dispatch/riding.py",
        "        return read.seq <= queued.seq\n",
        "        return read.seq >= queued.seq\n",
    ),
    Mutant(
        "rides by what is acknowledged",
        "1: the queued set counts, not the acknowledged one",
        "dispatch/boarding.py",
        "        has_all = contained(queue.mode, read, queue.queued)",
        "        has_all = contained(queue.mode, read, queue.acknowledged)",
    ),
    Mutant(
        "takes what it has",
        "1: put into the queue iff it is not in the queued set",
        "dispatch/queue.py",
        "        skip = None if level else steps.skip(self.mode, self.queued)",
        "        skip = None",
    ),
    Mutant(
        "distance does not matter",
        "1: near in the log",
        "dispatch/boarding.py",
        "        return distance is not None and distance <= self._limits.merge_bytes_max",
        "        return distance is not None",
    ),
    Mutant(
        "never near",
        "1: near in the log",
        "dispatch/boarding.py",
        "        return distance is not None and distance <= self._limits.merge_bytes_max",
        "        return distance is not None and distance <= 0",
    ),
    Mutant(
        "distance within a file only",
        "1: near in the log",
        "dispatch/riding.py",
        "        return sum(self._sizes[number] for number in numbers) - start + end",
        "        return abs(end - start)",
    ),
    Mutant(
        "folds inside a transaction",
        "1: folds at a transaction boundary",
        "dispatch/boarding.py",
        "        if not has_all or not has_transaction(queue.queued, dispatcher.inside):",
        "        if not has_all:",
    ),
    Mutant(
        "forgets that it stands inside a transaction",
        "1: folds at a transaction boundary",
        "dispatch/dispatcher.py",
        "            self.inside = self._open_one(batch, steps) if batch.tx.flags[-1] & OPEN else None",
        "            self.inside = None",
    ),
    Mutant(
        "moves with half a transaction",
        "1: the open part is undone when a consumer moves",
        "dispatch/dispatcher.py",
        "        consumer.queue.rollback()\n        consumer.patience.end(now)\n        consumer.left_at = now\n",
        "        consumer.patience.end(now)\n        consumer.left_at = now\n",
    ),
    Mutant(
        "reconnects with half a transaction",
        "7: a connection that is lost takes the open part with it",
        "dispatch/dispatcher.py",
        "            consumer.queue.rollback()\n            consumer.patience.end(now)\n\n",
        "            consumer.patience.end(now)\n\n",
    ),
    Mutant(
        "never folds",
        "1: two dispatchers become one",
        "dispatch/client.py",
        "        if len(self.dispatchers) > 1:\n            effects += self._fold(now)",
        "        if len(self.dispatchers) > 99:\n            effects += self._fold(now)",
    ),
    Mutant(
        "asks once whether two become one",
        "1: two dispatchers become one",
        "dispatch/boarding.py",
        "if self._told.get(d.number) != standing}",
        "if d.number not in self._told}",
    ),
    Mutant(
        "boards a stream that was begun meanwhile",
        "6: who has waited learns at a login whether the log was reset",
        "dispatch/boarding.py",
        "        if consumer.left_at < dispatcher.dumped_at:\n",
        "        if False:\n",
    ),
    Mutant(
        "takes the memory of one that has failed",
        "4: a consumer that failed is not read again, so nothing is taken from its queue",
        "dispatch/rooms.py",
        "[consumer for consumer in self._consumers.values() if consumer.failed is None]",
        "list(self._consumers.values())",
    ),
    Mutant(
        "one dispatcher each",
        "1: near consumers share a dump from the start",
        "dispatch/boarding.py",
        "        if dispatcher.phase is Phase.CONNECTING:\n",
        "        if dispatcher.phase is Phase.CONNECTING and not dispatcher.riders:\n",
    ),
    Mutant(
        "one dispatcher for all",
        "1: far consumers part",
        "dispatch/client.py",
        "        if first:\n            self._part(dispatcher, now)",
        "        if False:\n            self._part(dispatcher, now)",
    ),
    Mutant(
        "opens at the first one's place",
        "1: opened from the intersection",
        "dispatch/riding.py",
        "        gtids = gtids.intersection(place.gtids)",
        "        gtids = gtids",
    ),
    Mutant(
        "opens at the union",
        "1: opened from the intersection",
        "dispatch/riding.py",
        "        gtids = gtids.intersection(place.gtids)",
        "        gtids = gtids.union(place.gtids)",
    ),
    Mutant(
        "opens at the last place",
        "1: opened from the place furthest behind",
        "dispatch/riding.py",
        "        return min(places, key=lambda place: place.seq)",
        "        return max(places, key=lambda place: place.seq)",
    ),
    Mutant(
        "dumps from inside a transaction",
        "1: positions lie between transactions",
        "dispatch/dispatcher.py",
        "            if not count:\n                return self.read\n",
        "",
    ),
    Mutant(
        "boards after the server was asked",
        "6: who boards is checked by the login",
        "dispatch/boarding.py",
        "        if not riders or dispatcher.asked:",
        "        if not riders:",
    ),
    Mutant(
        "keeps an empty dispatcher",
        "1: a dispatcher without riders is retired",
        "dispatch/client.py",
        "        for dispatcher in [d for d in self.dispatchers.values() if not d.riders]:",
        "        for dispatcher in [d for d in self.dispatchers.values() if d.number > 99]:",
    ),
    # -- filter and markers ------------------------------------------------------------------------------------
    Mutant(
        "everybody gets everything",
        "2: a consumer gets its own databases",
        "dispatch/queue.py",
        "            batch, self.wanted.wants(routes), skip,",
        "            batch, self.wanted.wants(routes) | 1, skip,",
    ),
    Mutant(
        "covered beyond what is queued for the reader",
        "2: covered moves over markers only",
        "dispatch/queue.py",
        "        return max(self.acknowledged, self._covered, key=_seq) if self._runs else self.queued",
        "        return self.queued",
    ),
    Mutant(
        "acknowledges all that is queued",
        "2: covered moves over markers only",
        "dispatch/queue.py",
        "        if not self._runs or end >= self._log.committed:\n            return self.queued",
        "        if True:\n            return self.queued",
    ),
    Mutant(
        "markers are not stored",
        "2: a quiet consumer's progress is stored",
        "dispatch/client.py",
        "        moved = [consumer for consumer in self.consumers.values() if consumer.covered_moved]",
        "        moved: list[Consumer] = []",
    ),
    # -- room --------------------------------------------------------------------------------------------------
    Mutant(
        "never full",
        "3: queues are bounded",
        "dispatch/queue.py",
        "        return spilled or self._log.allocated >= self.bytes_max",
        "        return False",
    ),
    Mutant(
        "reads on while a queue is full",
        "3: queues are bounded",
        "dispatch/rooms.py",
        "        halted = bool(full) or self._over",
        "        halted = self._over",
    ),
    Mutant(
        "stays paused",
        "4: reads on when there is room",
        "dispatch/rooms.py",
        "                dispatcher.phase = Phase.STREAMING\n                return [Resume(dispatcher.number)]",
        "                return []",
    ),
    Mutant(
        "no patience",
        "4: waits as long as the budget lasts",
        "dispatch/patience.py",
        "        return self._since + self._left_s",
        "        return self._since",
    ),
    Mutant(
        "endless patience",
        "4: waits no longer than the budget lasts",
        "dispatch/patience.py",
        "        return (until := self.deadline) is not None and now >= until",
        "        return False",
    ),
    Mutant(
        "each wait on a budget of its own",
        "4: a budget, not a limit on each wait",
        "dispatch/patience.py",
        "            self._left_s = max(0.0, self._left_s - (now - self._since))",
        "            self._left_s = self._max_s",
    ),
    Mutant(
        "the budget is soon full again",
        "4: refilled at 5 % of elapsed time",
        "dispatch/patience.py",
        "REFILL = 0.05",
        "REFILL = 0.5",
    ),
    Mutant(
        "the budget is never refilled",
        "4: refilled at 5 % of elapsed time",
        "dispatch/patience.py",
        "REFILL = 0.05",
        "REFILL = 0.0",
    ),
    Mutant(
        "the budget grows without limit",
        "4: at most max_milliseconds_to_wait_in_binlog_queue",
        "dispatch/patience.py",
        "            self._left_s = min(self._max_s, self._left_s + REFILL * (now - self._at))",
        "            self._left_s = self._left_s + REFILL * (now - self._at)",
    ),
    Mutant(
        "detaches who is alone",
        "4: detached only when others ride",
        "dispatch/rooms.py",
        "    return consumer.spec.on_queue_full is OnQueueFull.DETACH and len(dispatcher.riders) > 1",
        "    return consumer.spec.on_queue_full is OnQueueFull.DETACH",
    ),
    Mutant(
        "detaches who is to be waited for",
        "4: on_queue_full: wait",
        "dispatch/rooms.py",
        "    return consumer.spec.on_queue_full is OnQueueFull.DETACH and len(dispatcher.riders) > 1",
        "    return len(dispatcher.riders) > 1",
    ),
    Mutant(
        "waits again after the third detach",
        "4: not waited for after three detaches in ten minutes",
        "dispatch/patience.py",
        "        if sum(self._since - at < WINDOW_S for at in self._detached) >= DETACHES_MAX:",
        "        if False:",
    ),
    Mutant(
        "never waits after a detach",
        "4: not waited for after three detaches in ten minutes",
        "dispatch/patience.py",
        "DETACHES_MAX = 3",
        "DETACHES_MAX = 1",
    ),
    Mutant(
        "merges at once, again and again",
        "4: merges later after each detach",
        "dispatch/patience.py",
        "MERGE_AFTER_S = (0.0, 5.0, 20.0, 60.0)",
        "MERGE_AFTER_S = (0.0, 0.0, 0.0, 0.0)",
    ),
    Mutant(
        "boards with a full queue",
        "4: boards again when at most half is held",
        "dispatch/rooms.py",
        "        return not consumer.started or self._has_room(consumer)",
        "        return True",
    ),
    Mutant(
        "boards with any room",
        "4: boards again when at most half is held",
        "dispatch/queue.py",
        "        return self._log.kept <= self.bytes_max // 2 or self.awaited",
        "        return True",
    ),
    Mutant(
        "pauses for long",
        "4: a pause over 5 s closes the connection",
        "dispatch/rooms.py",
        "PAUSE_MAX_S = 5.0",
        "PAUSE_MAX_S = 50.0",
    ),
    Mutant(
        "stays closed",
        "4: reopened when there is room",
        "dispatch/rooms.py",
        "            if roomy and not dispatcher.looking:\n                return dispatcher.connect()",
        "            if roomy and not dispatcher.looking:\n                return []",
    ),
    Mutant(
        "waits for nobody while closed",
        "4: the budget counts while the connection is closed for want of room",
        "dispatch/rooms.py",
        "    return not queue.roomy if dispatcher.phase is Phase.ROOMLESS else queue.full",
        "    return queue.full",
    ),
    Mutant(
        "the clock is not asked for the budget",
        "4: waits no longer than the budget lasts",
        "dispatch/client.py",
        "                times.append(deadline)",
        "                pass",
    ),
    Mutant(
        "evicts nobody",
        "3: max_bytes_in_all_queues",
        "dispatch/rooms.py",
        "        if now < self.evict_at or not (largest.waiting or largest.patience.exhausted(now)):",
        "        if largest is not None:",
    ),
    Mutant(
        "no limit on all queues",
        "3: max_bytes_in_all_queues",
        "dispatch/rooms.py",
        "        return any(consumer.queue.transactions for consumer in self._going_on())",
        "        return False",
    ),
    Mutant(
        "waits for room inside a transaction",
        "3: a transaction that has begun is let in whole",
        "dispatch/rooms.py",
        "        return any(consumer.queue.transactions for consumer in self._going_on())",
        "        return True",
    ),
    Mutant(
        "forgets a queue at once",
        "3: what was read again can be fetched",
        "dispatch/rooms.py",
        "            self.evict_at = now + EVICT_AFTER_S",
        "            self.evict_at = now",
    ),
    Mutant(
        "keeps out who has room",
        "3: max_bytes_in_all_queues brings nobody to a halt for long",
        "dispatch/rooms.py",
        "        if self._over:\n            return True\n",
        "        return self._over\n",
    ),
    Mutant(
        "goes on without what does not fit",
        "3: a transaction without room comes again",
        "dispatch/dispatcher.py",
        "            self.leave(consumer, now)\n            consumer.error = error",
        "            queue.rollback()\n            consumer.error = error",
    ),
    Mutant(
        "waits for room on disk for ever",
        "3: a transaction without room comes again",
        "dispatch/dispatcher.py",
        "            consumer.attach_after = now + OPERATOR_RETRY_S",
        "            consumer.attach_after = now + 1e9",
    ),
    # -- history -----------------------------------------------------------------------------------------------
    Mutant(
        "serves what was never executed",
        "6: contained in @@gtid_executed",
        "dispatch/checks.py",
        "    if unknown := held.subtract(executed):",
        "    if (unknown := held.subtract(executed)) and False:",
    ),
    Mutant(
        "does not know the file by its creation",
        "6: the stored file has the stored creation time",
        "dispatch/checks.py",
        "    if created and now and created != now:",
        "    if False:",
    ),
    Mutant(
        "takes a purged place",
        "6: purged is a typed error",
        "dispatch/checks.py",
        "    if missing := purged.subtract(held):",
        "    if (missing := purged.subtract(held)) and False:",
    ),
    Mutant(
        "does not wait for the replica",
        "6: after a failover the replica may catch up",
        "dispatch/placing.py",
        "        if now - dispatcher.behind_since >= wait_s:",
        "        if True:",
    ),
    Mutant(
        "waits for the replica for ever",
        "6: after a failover the replica may catch up",
        "dispatch/placing.py",
        "        if now - dispatcher.behind_since >= wait_s:",
        "        if False:",
    ),
    Mutant(
        "keeps the other server's files",
        "6: a file is one of its server",
        "dispatch/placing.py",
        "            queue.move_to(view.server)",
        "            queue.server = view.server",
    ),
    Mutant(
        "two servers at a time",
        "a client reads one server at a time",
        "dispatch/client.py",
        "            if other is not dispatcher and other.open and elsewhere:",
        "            if other is not dispatcher and other.open and elsewhere and False:",
    ),
    Mutant(
        "one consumer's fault is everybody's",
        "7: a fault concerns those whom it concerns",
        "dispatch/client.py",
        "                effects += dispatcher.fail(consumer, told, now)\n",
        "                for each in list(dispatcher.riders):\n                    effects += dispatcher.fail(each, told, now)\n",
    ),
    Mutant(
        "skips what was purged unasked",
        "on_purged: fail",
        "dispatch/placing.py",
        "        jumps = consumer.spec.on_purged is OnPurged.LATEST",
        "        jumps = True",
    ),
    Mutant(
        "stops at what was purged",
        "on_purged: latest",
        "dispatch/placing.py",
        "        jumps = consumer.spec.on_purged is OnPurged.LATEST",
        "        jumps = False",
    ),
    Mutant(
        "goes on behind a gap in the same epoch",
        "on_purged: latest begins a new epoch",
        "dispatch/queue.py",
        "        self.reset(server, mode, self.epoch + 1, place, created, anchored=True)",
        "        self.reset(server, mode, self.epoch, place, created, anchored=True)",
    ),
    Mutant(
        "the end is the beginning",
        "a start means one place",
        "dispatch/checks.py",
        '    if start.at == "latest":\n        return end_of(view)',
        '    if start.at == "latest":\n        return make_place(view.mode, view.purged, oldest, 4)',
    ),
    Mutant(
        "forgets files that a late login does not know",
        "1: near in the log",
        "dispatch/client.py",
        "        self.files.saw(view, late=late)",
        "        self.files.saw(view)",
    ),
    Mutant(
        "follows a file whatever it says of the ones before",
        "6: the head of a file is compared with what was read",
        "dispatch/continuity.py",
        "        if head is None or batch.file == self._known or not self._can_ask:\n",
        "        if True:\n",
    ),
    Mutant(
        "moves into a file before its head is known",
        "6: no place moves into a file before its head was compared",
        "dispatch/continuity.py",
        "            return Verdict.UNKNOWN\n",
        "            return Verdict.FOLLOWS\n",
    ),
    Mutant(
        "does not ask about the file before",
        "6: without GTIDs the server is asked about the file before",
        "dispatch/continuity.py",
        "            if mode is Mode.FILE or head.previous is None or was_open:\n",
        "            if False:\n",
    ),
    Mutant(
        "believes each answer about the file before",
        "6: what the server says is compared with where consumers stood",
        "dispatch/dispatcher.py",
        "        if error := compare(view, standings):\n",
        "        if (error := compare(view, standings)) and False:\n",
    ),
    Mutant(
        "a survey compares nothing",
        "6: each survey is compared with where consumers stood",
        "dispatch/client.py",
        "        effects = self._compare(0, view, now)\n",
        "        self._looks[0] = [x for x in self._looks.get(0, []) if x.unconfirmed]\n        effects = self._compare(0, view, now)\n",
    ),
    Mutant(
        "goes on beyond the end of a file",
        "6: a file is not shorter than what was read of it",
        "dispatch/checks.py",
        "    if place.offset > sizes[place.file]:\n",
        "    if False:\n",
    ),
    Mutant(
        "goes on from inside an event",
        "6: an event begins where consumers go on",
        "dispatch/checks.py",
        "    if not at.whole:\n",
        "    if False:\n",
    ),
    Mutant(
        "does not compare what was purged with a file that is gone",
        "6: what was read of a file is purged with it",
        "dispatch/checks.py",
        "    if anchored and (others := gtids.subtract(GtidSet.parse(view.purged))):\n",
        "    if False and (others := gtids):\n",
    ),
    # -- connections -------------------------------------------------------------------------------------------
    Mutant(
        "does not reconnect",
        "7: reconnect is the connection's affair",
        "dispatch/dispatcher.py",
        "            *self.connect(after_s),\n            *(Wake(name) for name in self.consumers),",
        "            *(Wake(name) for name in self.consumers),",
    ),
    Mutant(
        "one fault too many",
        "7: damage on the way is read again",
        "dispatch/dispatcher.py",
        "DAMAGE_MAX = 3",
        "DAMAGE_MAX = 1",
    ),
    # -- readers -----------------------------------------------------------------------------------------------
    Mutant(
        "the first place is not stored",
        "a place is stored before the first delivery",
        "dispatch/placing.py",
        "        queue.reset(view.server, view.mode, new_epoch(), start, created, anchored=anchored)\n        return [consumer.store()]",
        "        queue.reset(view.server, view.mode, new_epoch(), start, created, anchored=anchored)\n        return []",
    ),
    Mutant(
        "stored from what is queued",
        "8: what is not acknowledged is delivered again",
        "dispatch/consumer.py",
        "        return Store(self.name, Progress(queue.position(queue.acknowledged), position, created))",
        "        return Store(self.name, Progress(queue.position(queue.queued), queue.position(queue.queued), created))",
    ),
    Mutant(
        "restarts at what is acknowledged, counted twice",
        "2: a reader between acknowledged and covered goes on at covered",
        "dispatch/placing.py",
        "    queue.acknowledged = acknowledged\n",
        "",
    ),
    Mutant(
        "seeks without leaving",
        "9: a seek boards anew",
        "dispatch/client.py",
        "        if consumer.dispatcher is not None:\n            self.dispatchers[consumer.dispatcher].leave(consumer, now)\n        seeking.move(",
        "        seeking.move(",
    ),
    Mutant(
        "a seek is not stored",
        "9: a seek is stored",
        "dispatch/client.py",
        '        return [consumer.store(), Note("info", "sought", fields)]',
        '        return [Note("info", "sought", fields)]',
    ),
    Mutant(
        "believes every place that a reader names",
        "6: only a login proves a place that the server is not known to have executed",
        "dispatch/client.py",
        "        consumer.proven = self._is_known(consumer, to.place)",
        "        consumer.proven = True",
    ),
    Mutant(
        "seeks to what the server does not have",
        "9: a reader's position is gone to only if the server was found to have it",
        "dispatch/seeking.py",
        "    checks.history(view, view.mode, after.server, place, _created(consumer, after))\n",
        "",
    ),
    Mutant(
        "leaves its dispatcher for a seek that is refused",
        "9: a refused seek changes nothing",
        "dispatch/client.py",
        "        to = relocation.destination(consumer, what)\n",
        "        if consumer.dispatcher is not None:\n"
        "            self.dispatchers[consumer.dispatcher].leave(consumer, now)\n"
        "        to = relocation.destination(consumer, what)\n",
    ),
    Mutant(
        "a failed consumer stays failed whatever its reader brings",
        "9: a failed consumer takes a position that the server has",
        "dispatch/seeking.py",
        "    consumer.failed = None\n",
        "",
    ),
    Mutant(
        "a reload closes connections",
        "a reload does not disturb the others",
        "dispatch/client.py",
        '            self.dispatchers[consumer.dispatcher].leave(consumer, now)\n        return [Note("info", "consumer removed"',
        '            self.dispatchers[consumer.dispatcher].riders.remove(consumer)\n            return self.dispatchers[consumer.dispatcher].close("reload", now)\n        return [Note("info", "consumer removed"',
    ),
)
