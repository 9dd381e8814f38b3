"""A snapshot that adds and removes data files, and keeps the number of manifests small.

pyiceberg's own overwrite keeps each earlier manifest, even if the manifest lists only removed files, and merges no
manifests. If a table got a snapshot each minute, it would have a thousand manifests after a day, and each snapshot
would read all of them.
"""

from __future__ import annotations

from pyiceberg.manifest import ManifestFile
from pyiceberg.table import Transaction
from pyiceberg.table.snapshots import Operation
from pyiceberg.table.update.snapshot import _ManifestMergeManager, _OverwriteFiles

_MANIFEST_BYTES = 8 << 20  # Iceberg's default of commit.manifest.target-size-bytes
_MERGED_FROM = 20  # with this many manifests, small ones are merged


class ReplaceFiles(_OverwriteFiles):
    """Adds and removes data files in one snapshot of a transaction. `commit` writes the manifests, and adds the
    snapshot to the transaction."""

    def __init__(self, transaction: Transaction, summary: dict[str, str], *, removes: bool) -> None:
        """`summary`: additional properties of the snapshot; `removes`: True if files are removed."""
        super().__init__(
            operation=Operation.OVERWRITE if removes else Operation.APPEND,
            transaction=transaction,
            io=transaction._table.io,  # noqa: SLF001 - as `Transaction.update_snapshot`
            snapshot_properties=summary,
        )

    def _existing_manifests(self) -> list[ManifestFile]:
        return [
            manifest
            for manifest in super()._existing_manifests()
            if manifest.has_added_files() or manifest.has_existing_files()
        ]

    def _process_manifests(self, manifests: list[ManifestFile]) -> list[ManifestFile]:
        manager = _ManifestMergeManager(_MANIFEST_BYTES, _MERGED_FROM, True, self)
        return manager.merge_manifests(manifests)
