"""Files, commits and logs of Delta tables, and the control table.

`file_system`, `delta_log` and `delta_commit` hold the private interfaces of Spark's and Delta's JVM: nothing else of
the package touches `_jvm`.
"""
