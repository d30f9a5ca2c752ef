"""Run folders: what they are named by, what they hold, and how they are read."""

from lntrust.experiment.store.changes import kept_and_anew
from lntrust.experiment.store.collection import (
    Record,
    comparable,
    key_of,
    read_runs,
    superseded_key,
    write_collection,
)
from lntrust.experiment.store.identity import fingerprint, identities, slug
from lntrust.experiment.store.records import hardware, versions
from lntrust.experiment.store.schemas import without_mark

__all__ = [
    "Record", "comparable", "fingerprint", "hardware", "identities", "kept_and_anew", "key_of", "read_runs",
    "slug", "superseded_key", "versions", "without_mark", "write_collection",
]  # fmt: skip
