"""Reconciles the CDI folder with the checkpoint: completely when the plugin starts, and later what others removed.

The folder is shared with other vendors and lost at a restart of the machine. The kubelet does not call again for a
container that is restarted: without its claim's file it would not start. Claims that a call of this or another
process is handling now, as in a rolling update, are left to it. Everything here blocks, and raises CheckpointError
or OSError.
"""

import structlog

from parley_kubelet.cdi.specifications import Specifications
from parley_kubelet.state.checkpoint import CheckpointEntry, Entries
from parley_kubelet.state.durable import Folder
from parley_kubelet.state.records import SharedCheckpoint

log = structlog.get_logger(__name__)


def restore_all(state: Folder, records: SharedCheckpoint, specifications: Specifications) -> Entries:
    """Make each claim's file what its entry says, remove others, and return the checkpoint's entries."""
    state.sweep()
    specifications.sweep()
    found = specifications.claims()
    with state.free_names_locked({*found, *records.read_now()}) as free:
        entries = records.read_now()
        for uid in free:
            _restore(uid, entries.get(uid), specifications, has_file=uid in found)
    return entries


def restore_missing(state: Folder, records: SharedCheckpoint, specifications: Specifications) -> None:
    """Write the files of prepared claims that have none."""
    found = specifications.claims()
    missing = {uid for uid, entry in records.read_now().items() if entry.phase == "prepared" and uid not in found}
    with state.free_names_locked(missing) as free:
        entries = records.read_now()
        gone = free - specifications.claims()  # as it is under the lock
        for uid in gone:
            _restore(uid, entries.get(uid), specifications, has_file=False)
        if written := sorted(gone & specifications.claims()):
            log.warning("removed CDI files were written again", driver=specifications.driver, uids=written)


def _restore(uid: str, entry: CheckpointEntry | None, specifications: Specifications, *, has_file: bool) -> None:
    if entry is not None and entry.phase == "prepared":
        specifications.write(entry)
    elif has_file:
        specifications.remove(uid)
        if entry is None:
            log.warning("orphaned CDI specification removed", driver=specifications.driver, uid=uid)
