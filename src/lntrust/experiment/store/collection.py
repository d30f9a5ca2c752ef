"""Finished runs as tables, figures and pages see them: read from run folders, or from one file of many runs.

A collection is a Parquet file with a row per run: `run.json`, `summary.json` and the world's description as
JSON, and the run's own tables as lists. What is made from a collection is what the folders would have given;
checkpoints and predictions stay behind.
"""

import io
import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lntrust.core.errors import LNTrustError
from lntrust.core.files import read_json, write_whole
from lntrust.experiment.store.identity import fingerprint
from lntrust.experiment.store.schemas import Identity, is_superseded, superseded, upgrade, without_mark
from lntrust.experiment.store.worlds import world_file

_NOT_THE_RESULT = ("device", "backend", "versions", "hardware")  # where a run was made, not what it is
_TEXT, _TABLES = pa.string(), pa.map_(pa.string(), pa.binary())  # each table a Parquet file of its own
_SCHEMA = pa.schema({"run": _TEXT, "summary": _TEXT, "world": _TEXT, "tables": _TABLES})


@dataclass(frozen=True)
class Record:
    """One finished run."""

    identity: Identity  # run.json: study, method, settings, seed, device, versions, hardware
    summary: dict[str, Any]  # summary.json
    world_text: str = field(repr=False)
    tables: dict[str, pa.Table] = field(repr=False)  # rounds; and of LNTrust, trust and features

    @property
    def study(self) -> str:
        return str(self.identity["study"]["name"])

    @property
    def method(self) -> str:
        return str(self.identity["method"])

    @property
    def seed(self) -> int:
        return int(self.identity["seed"])

    @property
    def diverged(self) -> int | None:
        """The round in which it did, if it did; a run made before that was noticed does not say."""
        return cast(int | None, self.summary.get("diverged"))

    @property
    def key(self) -> str:
        """The same for every run of the same thing, wherever it was made."""
        return key_of(self.identity)

    @property
    def row_key(self) -> str:
        """The same for all seeds of a method at one setting."""
        return key_of({**self.identity, "seed": None})

    @property
    def superseded(self) -> bool:
        """Whether what it ran was corrected since."""
        return is_superseded(self.identity)

    @cached_property
    def world(self) -> dict[str, Any]:
        """Who is there, who knows whom, who holds what: see `worlds.describe_world`."""
        return dict(json.loads(self.world_text))

    @property
    def rounds(self) -> pa.Table:
        return self.tables["rounds"]


def key_of(identity: Identity) -> str:
    """What a run is, without the machine it was made on."""
    of = comparable(identity)
    return fingerprint({name: value for name, value in of.items() if name not in _NOT_THE_RESULT})


def superseded_key(identity: Identity) -> str | None:
    """The same for runs of a row of today's as they were before a correction; none: there was none.

    A corrected method's settings were others then, and say nothing.
    """
    of = superseded(identity)
    if not is_superseded(of):
        return None
    return key_of(
        {**of, "seed": None, **({} if without_mark(of["method"]) == of["method"] else {"settings": {}})}
    )


def comparable(identity: Identity) -> dict[str, Any]:
    """What tells a run from others in a table: of content, what users made themselves.

    Data of one name are taken to be the same ones, since the first runs did not say which; where runs do and
    differ, `read_runs` notes it in the studies of those that are not on the usual ones.
    """
    own = {k: v for k, v in identity.get("content", {}).items() if k in ("files", "sources")}
    return {k: v for k, v in identity.items() if k != "content"} | ({"content": own} if own else {})


def read_runs(paths: Sequence[Path]) -> list[Record]:
    """Every finished run in these folders (at any depth; and collections in them), and in these collections.

    Each of them once.
    """
    found: dict[tuple[str, str], Record] = {}
    records = _name_other_data([_read(path) for path in paths])
    for record in sorted(records, key=lambda r: "data" not in r.identity["content"]):  # what says more first
        found.setdefault((record.key, record.identity["device"]), record)
    if not found:
        raise LNTrustError(f"{', '.join(map(str, paths))}: no finished run there")
    return sorted(found.values(), key=lambda r: (r.study, r.method, r.key, r.seed))


def _name_other_data(places: Sequence[Sequence[Record]]) -> list[Record]:
    """The same records; where different data bear one name, the studies that had not the usual ones say so.

    The usual ones are those of most runs. A run that does not say is taken to have had those of most others
    in its place, and else the usual ones.
    """
    known: list[tuple[Record, str, str | None]] = []  # of each run its dataset, and the digest of that
    for records in places:
        said = []  # what each says; and what a collection notes where they were not the usual ones
        for each in records:
            named = each.identity["study"]["data"].get("content")
            said.append((each, _dataset(each), each.identity["content"].get("data"), named))
        usual = _commonest((dataset, data) for _, dataset, data, named in said if named is None)
        known += [(each, name, data or named or usual.get(name)) for each, name, data, named in said]
    usual = _commonest((dataset, digest) for _, dataset, digest in known)
    return [_naming(each, None if digest == usual.get(name) else digest) for each, name, digest in known]


def _dataset(record: Record) -> str:
    """With the views that are seen of it, since a digest speaks of those."""
    study = record.identity["study"]
    views = {learner["view"] for learner in study["population"]["learners"]}
    return " ".join([study["data"]["dataset"], *sorted(views)])


def _commonest(pairs: Iterable[tuple[str, str | None]]) -> dict[str, str]:
    """Of each dataset the digest that most runs have; of equals, the first."""
    counted = Counter((dataset, digest) for dataset, digest in pairs if digest is not None)
    return dict(pair for pair, _ in reversed(counted.most_common()))  # the last of each name stays


def _naming(record: Record, digest: str | None) -> Record:
    """The record with these data named in its study, or none."""
    study = record.identity["study"]
    data = {k: v for k, v in study["data"].items() if k != "content"}
    data |= {"content": digest} if digest is not None else {}
    return replace(record, identity={**record.identity, "study": {**study, "data": data}})


def _read(path: Path) -> list[Record]:
    if path.suffix == ".parquet" and path.is_file():
        return _from_collection(path)
    if not path.is_dir():
        raise LNTrustError(f"{path}: neither a folder with runs nor a collection of them (.parquet)")
    files = [file for file in sorted(path.glob("*.parquet")) if _is_collection(file)]
    # Of a run made twice, since our code has changed, the later one counts; what was collected is older.
    finished = sorted(path.rglob("summary.json"), key=lambda file: (-file.stat().st_mtime, file))
    collected = [record for file in files for record in _from_collection(file)]
    return [_from_folder(summary.parent) for summary in finished] + collected


def _is_collection(file: Path) -> bool:
    """Whether this is a collection, and not some other table that lies in a folder of results."""
    try:
        return set(_SCHEMA.names) <= set(pq.read_schema(file).names)
    except (OSError, pa.ArrowException):
        return False


def _from_folder(folder: Path) -> Record:
    identity = read_json(folder / "run.json")
    described = folder.resolve().parents[2] / world_file(identity)  # DIR/study/method/seed-…
    if not described.is_file():
        raise LNTrustError(
            f"{folder}: its world is not described in {described.name}; the command that made it, "
            "given again, does that"
        )
    tables = {file.stem: _read_table(file) for file in sorted(folder.glob("*.parquet"))}
    summary, world = read_json(folder / "summary.json"), described.read_text("utf-8")
    return Record(upgrade(identity), summary, world, tables)


def _from_collection(path: Path) -> list[Record]:
    table = _read_table(path)
    if not _is_collection(path):
        raise LNTrustError(f"{path}: a Parquet file, but no collection of runs (`lntrust collect` makes one)")
    records = []
    for row in table.to_pylist():
        tables = {name: _read_table(io.BytesIO(data)) for name, data in row["tables"]}
        of, summary = upgrade(json.loads(row["run"])), json.loads(row["summary"])
        records.append(Record(of, summary, row["world"], tables))
    return records


def _read_table(file: Path | io.BytesIO) -> pa.Table:
    try:
        return pq.read_table(file)
    except (OSError, pa.ArrowException) as error:
        raise LNTrustError(f"{file}: not a readable Parquet file: {error}") from None


def write_collection(records: Sequence[Record], path: Path, thin: bool = False) -> None:
    """All of these runs in one file. Thin: of the nodes' trust only what the last refresh left of it."""
    rows = []
    for record in records:
        tables = dict(record.tables)
        if thin and "trust" in tables:
            rounds = tables["trust"]["round"]
            tables["trust"] = tables["trust"].filter(pc.equal(rounds, pc.max(rounds)))
        texts = {"run": json.dumps(record.identity), "summary": json.dumps(record.summary)}
        packed = [(name, _packed(table)) for name, table in tables.items()]
        rows.append({**texts, "world": record.world_text, "tables": packed})
    table = pa.Table.from_pylist(rows, schema=_SCHEMA)
    # A world is shared by many runs: with a dictionary it is stored once.
    options = {"compression": "zstd", "compression_level": 15, "dictionary_pagesize_limit": 1 << 26}
    write_whole(path, lambda temporary: pq.write_table(table, temporary, **options))


def _packed(table: pa.Table) -> bytes:
    """Not compressed by itself: the file around it is, and finds more that repeats."""
    buffer = io.BytesIO()
    pq.write_table(table, buffer, compression="none", store_schema=False)
    return buffer.getvalue()
