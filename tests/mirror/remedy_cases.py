"""Lists for each remedy of the mirror the test that follows it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class StoppedTable:
    """A table that `test_remedies` brings into a state with a reason. `remedy`: the function that makes the remedy for
    this reason; `command`: the command of the remedy that the test runs; `shown`: the table's name in the output of
    `tables`, if it differs."""

    remedy: str
    command: str
    state: str = "stopped"
    shown: str = ""


TABLES = {
    "older_copy": StoppedTable("of_unknown_table", " copy "),
    "older_partial": StoppedTable("of_unknown_table", "--as partial"),
    "alter_recopy": StoppedTable("of_unknown_rows", "--as recopy"),
    "entry_recopy": StoppedTable("of_entry", "--as recopy"),
    "entry_applied": StoppedTable("of_entry", "--as applied"),
    "entry_skip": StoppedTable("of_entry", "--as skip"),
    "image_recopy": StoppedTable("of_copy_again", "--as recopy"),
    "lost_recopy": StoppedTable("of_lost_file", "--as recopy"),
    "lost_retry": StoppedTable("of_lost_file", "--as retry"),
    "folder_adopt": StoppedTable("of_other_folder", " adopt "),
    "folder_retry": StoppedTable("of_other_folder", "--as retry"),
    "owner_adopt": StoppedTable("of_other_consumer", " adopt "),
    "setting_retry": StoppedTable("of_setting", "--as retry"),
    "cascades_verify": StoppedTable("of_cascades", " verify ", "complete"),
    "history_recopy": StoppedTable("of_history", "--as recopy", shown="history_recopy__history"),
}
# Remedies that other tests follow, with the file and the function of the test.
_PROCESSOR = "tests/spark/mirror/test_stopped_tables.py"
CASES = {
    "of_difference": "tests/spark/mirror/copy/test_proofs.py::test_the_printed_repair_lets_a_stopped_table_go_on",
    "of_shown_columns": "tests/spark/mirror/copy/test_masks.py::test_the_printed_copy_lets_a_table_go_on_under_a_name"
    "_without_masks",
    "of_changed_masks": "tests/spark/mirror/copy/test_masks.py::test_a_complete_table_is_copied_when_its_masks_change",
    "of_live_difference": "tests/spark/mirror/copy/test_proofs.py::test_the_printed_repair_lets_a_stopped_table_go_on",
    "of_gap": "tests/mirror/test_gap.py::test_without_a_server_to_copy_from_tables_become_partial",
    "of_files_for_iceberg": "tests/mirror/test_iceberg.py::test_the_remedy_of_a_table_from_before_works",
    "of_purge": "tests/mirror/test_remedies.py::purge_while_down",
    "of_other_log": "tests/mirror/test_remedies.py::reset",
    "of_move": "tests/mirror/test_remedies.py::log_a_statement",
    "of_lost_log": "tests/mirror/test_remedies.py::delete_the_log",
    "of_conflict": f"{_PROCESSOR}::test_a_copy_that_ends_at_the_same_difference_is_not_made_again",
    "of_other_history": f"{_PROCESSOR}::test_the_commands_of_rows_of_another_history_work",
    "of_statement": f"{_PROCESSOR}::test_the_commands_of_a_statement_that_is_not_understood_work",
}
# Remedies that a person follows without a command.
WORDS = {"of_two_jobs", "of_lost_control"}
