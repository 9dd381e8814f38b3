"""The Spark source "binlog": stream reader, options, HTTP client of the daemon, and rows in Arrow."""

import logging

from spark_sink.log_lines import LastResort

logging.getLogger("spark_sink").addHandler(LastResort())
