"""Fixtures for real servers, the effort of hypothesis, and the order of the test files."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Generator, Iterator, Sequence
from functools import partial

import pytest
from hypothesis import settings
from xdist.remote import Producer  # type: ignore[import-untyped]
from xdist.scheduler.loadscope import LoadScopeScheduling  # type: ignore[import-untyped]
from xdist.workermanage import WorkerController  # type: ignore[import-untyped]

from tests.support.commit_seed import VARIABLE, commit_number, commit_seed
from tests.support.rotation import FileGroup, leave_files_to_deep, leave_to_deep
from tests.support.secrets import leaks

pytest_plugins = ["tests.servers.plugin"]

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A background job of a shell ignores SIGINT, and programs that the tests start would inherit this.
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Without this variable, Spark may listen on the address of another interface, in the tests and in programs that they
# start.
os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"

# No deadline for an example, because its time depends on the other load of the machine. A failure prints how to repeat
# the example.
settings.register_profile("fast", deadline=None, print_blob=True, max_examples=60)
settings.register_profile("deep", deadline=None, print_blob=True, max_examples=5000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fast"))

# Files and folders that wait for servers and daemons most of their time, and files that compute for seconds. The
# slowest come first: if one of them started last, the other workers would be idle while it runs. All other files
# compute, too.
_WAITING = (
    "tests/daemon/",
    "tests/servers/",
    "tests/differential/",
    "tests/inspect/test_server_log.py",
    "tests/front/clients/",
    "tests/spark/mirror/copy/test_text_rows_servers.py",
    "tests/spark/mirror/copy/test_replay_rule.py",
    "tests/spark/mirror/test_alterations_servers.py",
    "tests/spark/mirror/test_fill",
    "tests/spark/source/test_snapshot_servers.py",
    "tests/state/",
    "tests/faults/",
    "tests/binlog/test_servers_",
    "tests/mysql/",
    "tests/cli/",
    "tests/deploy/",
    "tests/inspect/",
    "tests/test_readme.py",
    "tests/data/",
    "tests/library/",
    "tests/source/",
    "tests/front/",
    "tests/spark/",
    "tests/demo/",
)
_COMPUTING = (
    "tests/mirror_simulation/",
    "tests/simulation/",
    "tests/dispatch/queue/",
    "tests/stream/",
    "tests/project/",
    "tests/dispatch/",
    "tests/leadership_simulation/",
)
# Three units run Spark: the tests that start jobs, the tests that share a Spark session for the source and for copies,
# and the tests that share a session for the rest of the mirror. With more than three JVMs on two cores, a Python worker
# does not start within the ten seconds that Spark waits for it. Starting a session takes longer than most of its tests.
_JOBS = (
    "tests/mirror/",
    "tests/demo/test_demo.py",
    "tests/spark/lines/test_lines.py",
    "tests/spark/test_pipelines.py",
    "tests/spark/test_session.py",
    "tests/spark/test_tutorial.py",
)
SESSION_FILES = tuple(
    f"tests/spark/{name}.py"
    for name in (
        "test_local_files",
        "source/test_source",
        "source/test_flat_batches",
        "source/test_large_transactions",
        "source/test_real_daemon",
        "source/test_declared_queries",
        "source/test_snapshot",
        "source/test_worker_memory",
        "test_connect",
        "test_sink_examples",
        "test_first_commit",
        "mirror/test_apply",
        "mirror/test_catalog_tables",
        "mirror/test_iceberg",
        "mirror/test_iceberg_readers",
        "mirror/test_readers",
        "mirror/test_change_feed",
        "mirror/test_changelog",
        "mirror/test_commands",
        "mirror/test_control_table",
        "mirror/test_conversions_servers",
        "mirror/test_crashes",
        "mirror/test_driver_commit",
        "mirror/test_histories",
        "mirror/test_same_name_again",
        "mirror/test_keyless_copy",
        "mirror/test_local_control",
        "mirror/test_invalid_values",
        "mirror/test_negative_zero",
        "mirror/test_recomputed",
        "mirror/test_log",
        "mirror/test_log_append",
        "mirror/test_lost_files",
        "mirror/test_maintenance",
        "mirror/test_waiting_tables",
        "mirror/test_stopped_tables",
        "mirror/test_filters",
        "mirror/test_filtered_renames",
        "mirror/test_misnamed_columns",
        "mirror/test_table_names",
        "mirror/test_taken_places",
        "mirror/test_schema_changes",
        "mirror/copy/test_copier",
        "mirror/copy/test_masks",
        "mirror/copy/test_large_rows",
        "mirror/copy/test_verify",
        "mirror/copy/test_proofs",
        "lines/test_contract",
    )
)

# Nearly all tests of these files start servers, daemons or jobs, or use the shared Spark. `make test` runs some files
# of each group, other files for each commit.
_ROTATED_FILES = (
    FileGroup(
        9,
        SESSION_FILES,
        always=("tests/spark/mirror/test_apply.py",),
    ),
    FileGroup(5, ("tests/daemon/",)),
    FileGroup(5, ("tests/faults/",)),
    FileGroup(4, ("tests/cli/",)),
    FileGroup(4, ("tests/front/test_", "tests/front/clients/")),
    FileGroup(4, ("tests/inspect/test_",)),
    FileGroup(4, ("tests/source/mysql/", "tests/mysql/")),
    FileGroup(4, ("tests/state/",)),
)


@pytest.fixture(scope="session", autouse=True)
def no_program_prints_a_secret(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """After the last test, search the output of all programs that the tests ran for passwords and tokens."""
    yield
    found = leaks(tmp_path_factory.getbasetemp())
    assert not found, "\n".join(found)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--rewrite-plays",
        action="store_true",
        help="write the transcripts of plays, of tests/simulation and tests/mirror_simulation",
    )


def pytest_report_header() -> list[str]:
    wait = max(group.one_in for group in _ROTATED_FILES)
    return [
        f"random tests: {VARIABLE}={commit_seed()}",
        f"slow files by turns: each runs for at least one of {wait} successive commits",
    ]


_NAMED = "paths_are_named"


def _paths_are_named(config: pytest.Config) -> bool:
    """True if the command line names files, folders or tests. Then all their tests run, except deep ones."""
    worker: dict[str, bool] | None = getattr(config, "workerinput", None)
    if worker is not None:  # a worker of xdist gets paths from the controller in any case
        return worker[_NAMED]
    return config.args_source is pytest.Config.ArgsSource.ARGS


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: WorkerController) -> None:
    node.workerinput[_NAMED] = _paths_are_named(node.config)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """While the test files are imported, hardly any object becomes garbage, so a search for garbage only takes time: a
    quarter of the collection, which each worker repeats. Later searches ignore the objects that the collection made."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def _file(nodeid: str) -> str:
    return nodeid.split("::", 1)[0]


def _unit(file: str) -> str:
    """Returns the name of the file's unit: one of the groups of files above, or the file."""
    if file.startswith(_JOBS):
        return "jobs"
    if file not in SESSION_FILES:
        return file
    mirror = file.startswith("tests/spark/mirror/") and "/copy/" not in file
    return "mirror session" if mirror else "session"


class Units(LoadScopeScheduling):  # type: ignore[misc]
    """Assigns tests to workers in units, whose tests share servers."""

    def _split_scope(self, nodeid: str) -> str:
        return _unit(_file(nodeid))


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Units:
    return Units(config, log)


def _places(files: Sequence[str]) -> dict[str, float]:
    """Returns the place of each file in the order in which units start: first the units of Spark, then, in turns, files
    that wait and files that compute, so that the processors are busy and no worker waits for a slow file at the end."""
    places = dict.fromkeys(files, 0.0)
    others = [file for file in files if _unit(file) == file]
    waiting = [file for file in others if file.startswith(_WAITING)]
    computing = [file for file in others if not file.startswith(_WAITING)]
    for some, slowest in ((waiting, _WAITING), (computing, _COMPUTING)):
        for n, file in enumerate(sorted(some, key=partial(_rank, slowest)), 1):
            places[file] = n / len(some)
    return places


def _rank(slowest: Sequence[str], file: str) -> int:
    return next((n for n, name in enumerate(slowest) if file.startswith(name)), len(slowest))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> Iterator[None]:
    if not _paths_are_named(config):
        leave_to_deep(items, commit_seed())
        leave_files_to_deep(items, commit_number(), _ROTATED_FILES)
    # Pytest deselects the deep tests, and then groups the tests of all files by the kind of server that they use. This
    # would start the units of Spark long after the others.
    yield
    places = _places(sorted({_file(item.nodeid) for item in items}))

    def start(item: pytest.Item) -> tuple[float, str]:
        file = _file(item.nodeid)
        return places[file], file

    items.sort(key=start)  # the order within a file does not change
