"""Files, commits and logs of Delta tables, and the control table.

`file_system`, `delta_log` and `delta_commit` call private interfaces of Spark and Delta in the JVM. No other module of
the package uses `_jvm`.
"""
