"""The mutants: each of them breaks one rule of leadership. `python -m tests.leadership_simulation.mutate` shows that
the assertions detect each mutant.

Mutants of the package `tests.leadership_simulation` break its replacements of `LeaseTable`, `DatabaseStore` and the
database server.
"""

from __future__ import annotations

from tests.simulation.changes import Assign, Drop, If, Insert, Replace, Return
from tests.simulation.mutant import Mutant

_HERE = "tests.leadership_simulation"

MUTANTS: tuple[Mutant, ...] = (
    # -- the lease -----------------------------------------------------------------------------------------------
    Mutant(
        "takes a live lease",
        "only a free lease is taken",
        "leadership.lease.campaigned",
        Return("LeaseRow(holder, address, row.term + 1, duration_s)"),
    ),
    Mutant(
        "takes the lease in the same term",
        "each holder has a term of its own",
        "leadership.lease.campaigned",
        Replace("row.term + 1", "max(row.term, 1)"),
    ),
    Mutant(
        "renews a lease that another daemon has taken",
        "a lost lease cannot be renewed",
        "leadership.lease.renewed",
        Return("replace(row, holder=holder, term=term, remaining_s=duration_s)"),
    ),
    Mutant(
        "releases another daemon's lease",
        "a lease is given back by its holder only",
        "leadership.lease.released",
        Return("replace(row, remaining_s=0.0)"),
    ),
    Mutant(
        "anyone may write",
        "a write compares holder and term",
        "transactions.save",
        If("row.is_of", "False"),
        package=_HERE,
    ),
    Mutant(
        "the holder of any term may write",
        "a write compares the term, too",
        "transactions.save",
        If("row.is_of", "row.holder.partition('.')[0] != holder.partition('.')[0]"),
        package=_HERE,
    ),
    # -- transactions --------------------------------------------------------------------------------------------
    Mutant(
        "checks the lease in another transaction than it writes",
        "a write is in the transaction that has locked the lease",
        "transactions.save",
        Insert("UpdateProgress(acknowledged)", "yield Commit()"),
        package=_HERE,
    ),
    Mutant(
        "checks the lease without its lock",
        "a write locks the lease first",
        "transactions.save",
        Replace("SelectLease(locks=True)", "SelectLease(locks=False)"),
        package=_HERE,
    ),
    Mutant(
        "campaigns without the lock",
        "a campaign locks the lease first",
        "transactions.campaign",
        Replace("SelectLease(locks=True)", "SelectLease(locks=False)"),
        package=_HERE,
    ),
    Mutant(
        "opens sessions without looking at the lease",
        "each write compares holder and term",
        "transactions.next_session",
        If("row.is_of", "False"),
        package=_HERE,
    ),
    Mutant(
        "lets the writer's clock decide",
        "the database's clock alone decides",
        "database.Database.execute",
        Replace(
            "reply(self.lease)",
            "reply(self.contents.lease(self.clock_s + 2 * 'abc'.index(session.owner[0])))",
        ),
        package=_HERE,
    ),
    Mutant(
        "answers a commit that it does not know of",
        "an acknowledgement is answered when it is stored",
        "daemon.Term._stored",
        If("ConnectionLost", "False"),
        package=_HERE,
    ),
    Mutant(
        "the server waits for ever for a client in a transaction",
        "a stopped daemon holds the lock for a limited time",
        "database",
        Assign("IDLE_S", "1000.0"),
        package=_HERE,
    ),
    # -- leading -------------------------------------------------------------------------------------------------
    Mutant(
        "delivers after an unanswered lease",
        "a leader without an answer for a whole lease delivers nothing",
        "leadership.leadership.Leadership.serves",
        Return("isinstance(self.state, Leading)"),
    ),
    Mutant(
        "goes on after an unanswered lease",
        "a leader without an answer for a whole lease ends its connections",
        "leadership.leadership.Leadership._settle",
        If("self._confirmed_until(self.state)", "False"),
    ),
    Mutant(
        "counts the lease from the answer",
        "the lease counts from when the request was sent",
        "leadership.leadership.Leadership._renewal_answer",
        Replace("Leading(state.term, sent.at_s, due_s)", "Leading(state.term, due_s, due_s)"),
    ),
    Mutant(
        "goes on after a renewal that was refused",
        "a leader that has lost its lease resigns",
        "leadership.leadership.Leadership._renewal_answer",
        If("row.is_of", "True"),
    ),
    Mutant(
        "leads a term that it only reads of",
        "a daemon leads after its own campaign only",
        "leadership.leadership.Leadership._standby_answer",
        If("campaigned and row.holder == self._holder", "row.holder == self._holder"),
    ),
    Mutant(
        "keeps its id for the next term",
        "no id leads twice",
        "leadership.leadership.Leadership._stand_by",
        Drop("self._holder = event.holder"),
    ),
    Mutant(
        "takes every answer for that of the open request",
        "an answer to an earlier request counts for nothing",
        "leadership.leadership.Leadership._end_request",
        If("sent is None", "sent is None"),
    ),
    Mutant(
        "leads before the term before has ended",
        "a daemon is a standby when everything of its term has ended",
        "leadership.leadership.Leadership._lose",
        Assign("self.state", "StandingBy(None, 0.0, ReadLease(), 0.0)"),
    ),
    # -- nothing waits for ever ----------------------------------------------------------------------------------
    Mutant(
        "waits for ever for an answer",
        "a request without an answer is given up",
        "leadership.leadership.Leadership._patience_s",
        Return("1e9"),
    ),
    Mutant(
        "a leader has the patience of a standby",
        "a leader asks again before its lease expires",
        "leadership.leadership.Leadership._patience_s",
        Return("self._lease_s"),
        tests="tests/leadership/test_leadership.py",
    ),
    Mutant(
        "a standby has less patience than a leader",
        "a database that is fast enough for a leader is fast enough for a campaign",
        "leadership.patience.standby_patience_s",
        Return("min(lease_s, STANDBY_S)"),
        tests="tests/leadership/test_patience.py",
    ),
    Mutant(
        "does not campaign",
        "a free lease is taken",
        "leadership.leadership.Leadership._standby_answer",
        If("row.free", "False"),
    ),
    Mutant(
        "does not renew",
        "a leader renews its lease",
        "leadership.leadership.Leadership._send_if_due",
        Replace("Renew(self._holder, state.term)", "ReadLease()"),
    ),
    Mutant(
        "does not ask again after an error",
        "a standby asks again after an error",
        "leadership.leadership.Leadership._failed",
        Replace("now + POLL_S", "float('inf')"),
    ),
    Mutant(
        "a leader does not ask again after an error",
        "a leader asks again after an error",
        "leadership.leadership.Leadership._failed",
        Replace("now + RETRY_S", "float('inf')"),
        tests="tests/leadership/test_leadership.py",
    ),
    Mutant(
        "stays in the term that it has lost",
        "a daemon that has resigned is a standby again",
        "leadership.leadership.Leadership._resigned",
        Drop("self._stand_by(event, now, now)"),
    ),
    Mutant(
        "ignores that it cannot open the store",
        "a daemon that cannot lead gives the lease back",
        "leadership.leadership.Leadership._not_led",
        Drop("self._stand_by(event, now, now + self._lease_s)"),
    ),
    # -- handing over --------------------------------------------------------------------------------------------
    Mutant(
        "exits without giving the lease back",
        "a daemon that ends gives its lease back",
        "leadership.leadership.Leadership._may_exit",
        Return("True"),
    ),
    Mutant(
        "forgets the lease after a late renewal",
        "a daemon that has resigned gives its lease back",
        "leadership.leadership.Leadership._standby_answer",
        If("isinstance(state.next, Release)", "False"),
        tests="tests/leadership/test_leadership.py",
    ),
    Mutant(
        "forgets the lease after an error",
        "a daemon that has resigned asks again to give its lease back",
        "leadership.leadership.Leadership._failed",
        Replace("isinstance(state.next, Release)", "False"),
        tests="tests/leadership/test_leadership.py",
    ),
    Mutant(
        "forgets the lease when it is to end",
        "a daemon that ends gives the lease of its last term back",
        "leadership.leadership.Leadership._hand_over",
        Replace("Leaving(release, is_sent)", "Leaving(None)"),
        tests="tests/leadership/test_leadership.py",
    ),
    Mutant(
        "exits while a campaign is open",
        "a campaign that is open may take the lease",
        "leadership.leadership.Leadership._may_exit",
        If("self._open is not None", "False"),
        tests="tests/leadership/test_leadership.py",
    ),
    Mutant(
        "does not store what is queued",
        "a daemon that ends stores first what is queued",
        "leadership.leadership.Leadership._hand_over",
        Replace("Resign(state.term, orderly=True)", "Resign(state.term, orderly=False)"),
    ),
    Mutant(
        "does not exit while it resigns",
        "a daemon that is to end does so after its term",
        "leadership.leadership.Leadership._hand_over",
        Drop("self.state = replace(state, exits=True)"),
    ),
)
