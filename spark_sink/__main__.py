"""`python -m spark_sink`, and the file to give to spark-submit."""

from __future__ import annotations

import sys

from spark_sink.job import main

if __name__ == "__main__":
    sys.exit(main())
