"""`python -m spark_sink`, and the file for spark-submit."""

from __future__ import annotations

from dispatcher.model.extras import needs_extra

with needs_extra("spark", "python -m spark_sink"):
    from spark_sink.mirror.cli import main

if __name__ == "__main__":
    main()
