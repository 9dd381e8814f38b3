"""The lines of Spark beside the one of `requirements.lock`, each with a part of the tests.

`python -m tests.spark.lines provision` installs the lines into the cache folder, and `test_lines` runs `test_contract`
with each of them. `python -m tests.spark.lines record` runs it with other versions, too, and writes what ran into
`tried.json` and docs/spark-versions.md.
"""
