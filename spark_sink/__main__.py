"""`python -m spark_sink`, and the file for spark-submit."""

from __future__ import annotations

import sys

from spark_sink.job import run_job

if __name__ == "__main__":
    sys.exit(run_job())
