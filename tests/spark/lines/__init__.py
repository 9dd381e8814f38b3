"""The lines of Spark besides that of `requirements.lock`. A part of the tests runs with each of them.

`python -m tests.spark.lines provision` installs the lines into the cache folder, and `test_lines` runs `test_contract`
with each of them. `test_kills` kills the processes of a stream with each of them. `python -m tests.spark.lines record`
runs the contract with other versions, too, and writes what ran into `tried.json` and docs/spark-versions.md.
"""
