"""Files, commits and logs of Delta tables, and the control table.

`file_system`, `delta_log`, `delta_commit` and `delta_line` call private interfaces of Spark and Delta in the JVM. No
other module of the package uses `_jvm`.
"""
