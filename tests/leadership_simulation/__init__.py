"""Tests of the rules of leadership: seeded histories of several daemons, the database of their state store, the network
between them, and readers that acknowledge.

`play`: makes a history from a seed. `world`: the clock, and the faults that may happen. `database`: the server with its
clock, its locks and its committed contents. `network`: the connections of the daemons to it. `transactions`: the
transactions of the daemons. `daemon`: a process with the rules, and the parts that run during a term. `reader`: reads a
consumer over all daemons. `judge`: the assertions. `mutants`: each rule broken on purpose, to prove that the assertions
notice it. `plays`: histories written by hand, with their transcripts.
"""
