"""Tests of the mirror's rules: seeded histories of a server, its log, the Delta tables, people and jobs that die.

`play`: makes a history from a seed: changes of the server (`changes`), and events of the job. `world`: the events that
may happen in a history. `works`, `copies`, `folders`: execute what the rules decide. `server`, `log`, `lake`,
`control`, `quarantine`: the simulated parts; `column_values`: what they show of the server's values. `judge`: the
assertions. `mutants`: each rule broken on purpose, to prove that the assertions notice it. `plays`: histories written
by hand, with their transcripts.
"""
