"""The demo's consumers, and the settings of the daemons and of the mirror job, as a user would write them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from deploy.demo.schema import DATABASES
from deploy.demo.watch import TOOL, DemoConsumer
from dispatcher.state.server.session import PRIVILEGES

MIB = 1 << 20
CONSUMERS = (
    DemoConsumer("shop", "repl", ("shop",), 64 * MIB),
    DemoConsumer("billing", "repl", ("billing",), 64 * MIB),
    DemoConsumer("warehouse", "depot", ("warehouse",), 64 * MIB),
    DemoConsumer("audit", "repl", ("shop", "billing"), 16 * MIB, reader=TOOL),
    DemoConsumer("never_reads", "repl", DATABASES, MIB // 4, shared=False, reader=""),
)
MIRRORED = tuple(consumer.name for consumer in CONSUMERS if consumer.mirrored)
COPY_GRANTS = ("SELECT ON *.*", "REPLICATION CLIENT ON *.*", "PROCESS ON *.*")

STATE_DATABASE = "binlog_dispatcher"
STATE_USER = "dispatcher"
STATE_GRANTS = (f"{', '.join(PRIVILEGES)} ON {STATE_DATABASE}.*",)


def daemon_settings(mysql_port: int, port: int, front: int, state: str) -> str:
    """`port`: of the API; `front`: of the front; `state`: the value of the key `state`, see `state_in_file` and
    `state_in_database`."""
    lines = ["consumers:"]
    for consumer in CONSUMERS:
        lines += [
            f"  {consumer.name}:",
            f'    mysql: "{consumer.user}@127.0.0.1:{mysql_port}"',
            '    password: "${DEMO_PASSWORD}"',
            f"    databases: [{', '.join(consumer.databases)}]",
            "    start: earliest",
            f"    max_bytes_in_binlog_queue: {consumer.queue_bytes_max // 1024}KiB",
        ]
        if not consumer.shared:
            lines.append("    use_binlog_client: false")
    lines += [
        f"api: {{listen: 127.0.0.1:{port}}}",
        f"front: {{listen: 127.0.0.1:{front}, acknowledge_after_seconds: 2}}",
        f"state: {state}",
    ]
    return "\n".join(lines) + "\n"


def state_in_file(path: Path) -> str:
    return f"{{path: {path}}}"


def state_in_database(server_port: int, spill: Path) -> str:
    """`spill`: the folder for large transactions, one for each daemon."""
    return (
        f'{{mysql: "{STATE_USER}@127.0.0.1:{server_port}/{STATE_DATABASE}",'
        f' password: "${{DEMO_PASSWORD}}", spill_path: {spill}}}'
    )


def mirror_settings(mysql_port: int, ports: Sequence[int], metrics: int, target: Path) -> str:
    """`ports`: of all daemons."""
    return f"""url: {daemon_urls(ports)}
consumers: [{", ".join(MIRRORED)}]
target: {target}
metrics: 127.0.0.1:{metrics}
copy: {{mysql: "copy@127.0.0.1:{mysql_port}", password: "${{DEMO_PASSWORD}}"}}
prove: {{rows_per_second: 100000, share_of_time: 0.3, every_seconds: 10}}
tables: {{"*.*": {{on_difference: repair}}}}
"""


def daemon_urls(ports: Sequence[int]) -> str:
    """The addresses of the daemons, in the form that readers take."""
    return ",".join(f"http://127.0.0.1:{port}" for port in ports)
