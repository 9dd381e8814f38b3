"""Runs a part of the tests with other lines of Spark than the line of `requirements.lock`. A line is all versions that
begin with the same two numbers, such as 4.1.

`python -m tests.spark.lines provision` installs the lines into the cache folder, and `test_lines` runs `test_contract`
with each of them. `test_kills` kills the processes of a stream with each of them. `python -m tests.spark.lines record`
runs the contract with other versions, too, and adds the versions that pass to `tried.json` and docs/spark-versions.md.
"""
