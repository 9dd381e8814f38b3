"""Tests of the mirror's rules: seeded histories of a server, its log, the Delta tables, people and jobs that die.

`play`: makes a history of a seed, of changes of the server (`changes`) and of what happens to the job. `world`: the
events that may happen in one. `works`, `copies`, `folders`: execute what the rules decide. `server`, `log`, `lake`,
`control`: what is there. `judge`: the assertions. `mutants`: each rule broken on purpose, to prove that the assertions
notice it. `plays`: histories written by hand, with their transcripts.
"""
