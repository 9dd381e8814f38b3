"""The main job on this machine, from one command: MySQL → daemon → Spark → Delta tables, and a proof.

    python -m deploy.demo [--seconds N] [--seed N] [--target DIR] [--keep]

    scene     what is started in which order, and what ends the demo
    parts     the daemon and Spark as processes of their own; none outlives the demo
    schema, operations, load
              three databases with a shop's tables, what happens to them by a seed, and who makes it happen
    watch     what is going on, and what must hold meanwhile
    view      the same for people: live on a terminal, lines elsewhere
    delta     Delta tables, read without Spark
    compare   every value of every table on both sides

The daemon and the mirror job are started by the commands that a user would type, and are asked through what a user
has: `GET /v1/binlogs`, log files, the server's list of processes. Nothing of the demo reaches into them.
"""
