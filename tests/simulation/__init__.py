"""Tests of the rules of dispatching: seeded histories of a client, its server, its network and its readers.

`play`: makes a history from a seed. `world`: the events that may happen in a history. `rules`: the assertions after
every step. `histories`: the servers' logs. `mutants`: each rule broken on purpose, to prove that the assertions notice
it. `plays`: histories written by hand, one for each rule, with the transcript of the effects.
"""
