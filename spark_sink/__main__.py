"""`python -m spark_sink`, and the file for spark-submit."""

from __future__ import annotations

from dispatcher.model.extras import needs_extra
from dispatcher.terminal.interrupts import exit_at_interrupt

with exit_at_interrupt(), needs_extra("spark", "binlog-mirror", program=True):
    from spark_sink.mirror.cli import main

if __name__ == "__main__":
    main()
