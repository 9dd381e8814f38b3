"""Mirrors a real MySQL server to Delta tables on this machine, MySQL → daemon → Spark → Delta, and compares the result.

    python -m deploy.demo [--seconds N] [--seed N] [--target DIR] [--keep] [--standby]

    runner     starts everything, runs the demo, reports the result
    processes  runs the daemon and Spark as child processes, and ends them with the demo
    settings   the consumers, and the settings of daemons and mirror job
    schema     the tables of a shop, in three databases
    operations random transactions of the shop, repeatable by a seed
    load       threads that execute these transactions
    watch      observes daemon, server and mirror job, and checks rules
    view       shows the observations: live on a terminal, as lines elsewhere
    delta      reads Delta tables without Spark
    compare    compares every value of every table
    replication runs mysqlbinlog as a client of the front, and compares its rows with those of the server's log

The daemon, the mirror job and mysqlbinlog are started with the commands that a user would type, and observed through
public interfaces: `GET /v1/binlogs`, log files, the server's process list.
"""
