"""Decides what happens to a table, from its record, the entries of the log and the policies.

Pure: no Spark, no clock, no threads, no I/O.
"""
