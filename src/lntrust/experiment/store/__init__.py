"""Run folders: what they are named by, what they hold, and how they are read."""

from lntrust.experiment.store.changes import kept_and_anew
from lntrust.experiment.store.collection import Record, comparable, key_of, read_runs, write_collection
from lntrust.experiment.store.identity import fingerprint, identities, slug
from lntrust.experiment.store.records import hardware, versions

__all__ = [
    "Record", "comparable", "fingerprint", "hardware", "identities", "kept_and_anew", "key_of", "read_runs",
    "slug", "versions", "write_collection",
]  # fmt: skip
