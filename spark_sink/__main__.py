"""`python -m spark_sink`, and the file for spark-submit."""

from __future__ import annotations

from spark_sink.cli import main

if __name__ == "__main__":
    main()
