"""What statements do at real servers, recorded, and what the daemon and the mirror make of the same log.

corpus     the statements, by group, with the settings of the session that runs them
cases      reads the corpus
settings   the settings of sessions
worlds     the databases in which a statement runs, and what is in all tables before and after
recorder   runs statements on servers, and keeps the logged events and what changed
recorded   the files in `data`
replay     what the daemon and the mirror make of the logged events, by the product's own functions
judge      compares that with what changed at the server
known      the differences that are known and not removed yet
grammar    makes statements from the servers' grammars
"""
