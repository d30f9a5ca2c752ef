"""Runs side by side: one row per method and setting, means over seeds, differences to Independent.

Everything that is shown anywhere (tables, figures, the page) is computed here, once.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from lntrust.experiment.divergence import what_diverged
from lntrust.experiment.statistics import Interval, probability_of_improvement
from lntrust.experiment.store import Record, comparable, fingerprint, without_mark
from lntrust.methods.lntrust.presets import names as preset_names
from lntrust.report.nodes import Below, On, Pair, below, difference, judged, on_own_tests, per_node

ANSWERS = ("reply", "parameters", "anchors")  # all but queries
Score = Literal["test", "self"]


class Spread(NamedTuple):
    """Mean and standard deviation over seeds (ddof 0, as the paper's code has it)."""

    mean: float
    std: float


@dataclass(frozen=True)
class Course:
    """A score at the rounds that every seed evaluated."""

    rounds: Float[ndarray, "k"]
    bytes: Float[ndarray, "k"]  # sent so far, per node; in the end all, also what followed the last round
    mean: Float[ndarray, "k"]
    std: Float[ndarray, "k"]


@dataclass(frozen=True)
class Row:
    """One method at one setting of one study, all seeds."""

    label: str
    records: list[Record]  # by seed; those that diverged are not among them, and so in no mean
    paper: dict[str, float] = field(default_factory=dict)  # test, test_std, self, self_std, gain
    independent: list[Record] = field(default_factory=list)  # its runs in the same worlds, of all or none
    x: float | None = None  # its place in a figure of an ablation
    published: bool = False  # the method as the study has it, where other rows change it
    diverged: list[Record] = field(default_factory=list)

    @property
    def runs(self) -> list[Record]:
        """All, by seed: also those that diverged."""
        return sorted([*self.records, *self.diverged], key=lambda record: record.seed)

    @property
    def first(self) -> Record:
        return (self.records or self.diverged)[0]

    @property
    def method(self) -> str:
        """Its name today."""
        return without_mark(self.first.method)

    @property
    def superseded(self) -> bool:
        """Whether what it ran was corrected since."""
        return self.first.superseded

    @property
    def seeds(self) -> list[int]:
        """Those that have scores."""
        return [record.seed for record in self.records]

    @property
    def what_diverged(self) -> str:
        """In words: `2 of 3 seeds; seed 1 diverged at round 7`; nothing where none did."""
        return what_diverged([record.summary | {"seed": record.seed} for record in self.runs])

    # -- scores

    def spread(self, score: str) -> Spread | None:
        """Of a score in the summaries: test, self, test_pooled, self_pooled, stage1, …"""
        return spread([record.summary[score] for record in self.records])

    @property
    def on_own_tests(self) -> bool:
        """Whether single nodes are judged by their own test sets although there is a pooled score."""
        return on_own_tests(self.first) and any(
            record.summary["test_pooled"] is not None for record in self.records
        )

    @property
    def p10(self) -> float | None:
        """The 10th percentile over nodes, by what single nodes are judged by."""
        scores = [judged(record, record)[0] for record in self.records]
        known = [values[np.isfinite(values)] for values in scores if np.isfinite(values).any()]
        return float(np.mean([np.percentile(values, 10) for values in known])) if known else None

    @property
    def harmed(self) -> Below | None:
        """Nodes whose deployed answer scores lower than their own model, judged as single nodes are."""
        return below(self._own_models)

    def harmed_on(self, score: On) -> Below | None:
        names = score, score.replace("test", "self")
        pairs = [(per_node(record, names[0]), per_node(record, names[1])) for record in self.records]
        return below([(a, b) for a, b in pairs if len(a) == len(b)])

    @property
    def _own_models(self) -> list[Pair]:
        return [judged(record, record, ("test", "self")) for record in self.records]

    @property
    def test_selected(self) -> bool:
        """Whether Test is the best round on test: the paper's reading of LNTrust, and of nothing else."""
        reading = self.first.identity["study"].get("reading", "honest")
        return without_mark(reading) == "paper" and self.first.method == "lntrust"

    @property
    def test_score(self) -> str:
        """What Test is called in the summaries."""
        return "best_round_test_selected" if self.test_selected else "test"

    @property
    def test(self) -> Spread | None:
        return self.spread(self.test_score)

    @property
    def gain(self) -> Spread | None:
        """Test − the nodes' own models after Stage 1: the paper's deploy gain."""
        pairs = [(record.summary[self.test_score], record.summary["stage1"]) for record in self.records]
        return spread([None if test is None or one is None else test - one for test, one in pairs])

    @cached_property
    def courses(self) -> dict[Score, Course]:
        """Test and Self over the rounds, means over seeds."""
        return {score: self._course(score) for score in ("test", "self")}

    @property
    def evaluated(self) -> bool:
        """Whether there are rounds at which every run has a score."""
        return len(self.courses["test"].rounds) > 0

    def _course(self, score: Score) -> Course:
        by_seed = [_bytes_and_score(record, score) for record in self.records]
        common = sorted(set.intersection(*map(set, by_seed))) if by_seed else []
        table = np.array([[each[number] for number in common] for each in by_seed], dtype=float)
        sent, values = np.moveaxis(table.reshape(len(by_seed) or 1, len(common), 2), 2, 0)
        sent = np.append(sent.mean(0)[:-1], [1e9 * self.gigabytes()] if common else [])
        return Course(np.array(common, float), sent, values.mean(0), values.std(0))

    # -- against Independent

    @property
    def compared(self) -> bool:
        """Whether there is an Independent, and another than this."""
        return bool(self.independent) and self.first.method != "independent"

    @cached_property
    def difference(self) -> Interval | None:
        """Test − Independent's Test, paired by seed and node."""
        return difference(self.records, self.independent, "test")

    @cached_property
    def improvement(self) -> float | None:
        """The chance that a node scores higher than under Independent, by what single nodes are judged by."""
        return probability_of_improvement([a for a, _ in self._beside], [b for _, b in self._beside])

    @property
    def below_independent(self) -> Below | None:
        """Nodes that score lower than under Independent, by what single nodes are judged by."""
        return below(self._beside)

    def below_independent_on(self, score: On) -> Below | None:
        """The same on the nodes' own test sets, or on the union of all."""
        pairs = [(per_node(a, score), per_node(b, score)) for a, b in self._partners]
        return below([(a, b) for a, b in pairs if len(a) == len(b)])

    @property
    def _beside(self) -> list[Pair]:
        return [judged(a, b) for a, b in self._partners]

    @property
    def _partners(self) -> list[tuple[Record, Record]]:
        return list(zip(self.records, self.independent, strict=False))  # there may be no Independent

    # -- bytes

    @property
    def sent(self) -> float:
        """Bytes that all nodes together send in training, framing included."""
        return _mean([record.summary["bytes"]["total"] for record in self.records])

    def gigabytes(self, kind: str = "total") -> float:
        """The same per node, in GB. Where all diverged, nothing counts."""
        return _mean([r.summary["bytes"][kind] / r.summary["nodes"] for r in self.records]) / 1e9

    def headers(self, kind: str) -> float | None:
        """Of what is sent in training of this kind, the framing, per node, in GB; older runs do not know."""
        each = [(r.summary["bytes"].get("framing_by_kind"), r.summary["nodes"]) for r in self.records]
        known = [by_kind[kind] / nodes for by_kind, nodes in each if by_kind is not None]
        return _mean(known) / 1e9 if known and len(known) == len(each) else None

    @property
    def answers(self) -> float:
        """Sent in training per node but for queries, in GB, with headers where they are known."""
        return sum(self.gigabytes(kind) + (self.headers(kind) or 0.0) for kind in ANSWERS)

    @property
    def bytes_per_answer(self) -> float:
        return _mean([record.summary["bytes"]["per_deployed_query"] for record in self.records])

    @property
    def asked(self) -> float | None:
        """Neighbours that a deployed node asks about an input; older runs do not know."""
        each = [record.summary["bytes"].get("asked_per_input") for record in self.records]
        return _mean(each) if each and None not in each else None

    @property
    def seconds(self) -> float:
        return _mean([record.summary["seconds"] for record in self.records or self.diverged])


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values)) if values else 0.0


def spread(values: Sequence[float | None]) -> Spread | None:
    present = [value for value in values if value is not None]
    return Spread(float(np.mean(present)), float(np.std(present))) if present else None


def _bytes_and_score(record: Record, score: Score) -> dict[int, tuple[float, float]]:
    """By round: what a node has sent so far, and the score, where there is one."""
    if "rounds" not in record.tables or score not in record.rounds.column_names:
        return {}
    columns = (record.rounds.column(name).to_pylist() for name in ("round", "bytes", score))
    nodes = record.summary["nodes"]
    return {r: (sent / nodes, value) for r, sent, value in zip(*columns, strict=True) if value is not None}


def main_row(rows: Sequence[Row]) -> Row | None:
    """The row that stands for LNTrust: as published, else called so, else the first; none without LNTrust."""
    ours = [row for row in rows if row.first.method == "lntrust"]
    return min(ours, key=lambda row: (not row.published, row.label.lower() != "lntrust"), default=None)


def headers_text(rows: Sequence[Row], name: Callable[[Row], str] = lambda row: row.label) -> str:
    """In words, whether the rows' `answers` include headers."""
    talking = [row for row in rows if row.answers > 0]
    known = [name(row) for row in talking if row.headers("reply") is not None]
    lacking = [name(row) for row in talking if row.headers("reply") is None]
    if not lacking:
        return "with their headers"
    if not known:
        return "without headers, which these runs have not stored by kind"
    if len(known) < len(lacking):
        return f"with headers only of {', '.join(known)}: the other runs have not stored them by kind"
    return f"with headers, but not of {', '.join(lacking)}, whose runs have not stored them by kind"


# -- which runs belong together -------------------------------------------------------------------


def grouped(records: Sequence[Record], key: Callable[[Record], str]) -> dict[str, list[Record]]:
    """What has the same key together, in the order they come."""
    out: dict[str, list[Record]] = {}
    for record in records:
        out.setdefault(key(record), []).append(record)
    return out


def rows_of(records: Sequence[Record]) -> dict[str, list[Row]]:
    """Rows by study: Independent first, then others by name, LNTrust, and its presets last.

    What tells a method's settings from each other stands in the label.
    """
    places = {name: place for place, name in enumerate(["lntrust", *preset_names()], 1)}
    studies = {}
    for study, here in grouped(records, lambda record: record.study).items():
        methods = grouped(here, _label)
        order = sorted(methods, key=lambda label: (places.get(label, 0), label != "independent", label))
        studies[study] = [row for label in order for row in _rows(methods[label], here)]
    return studies


def method_label(method: str, deploy: str | None) -> str:
    """`dml → trust`: the method, and how it is deployed where the study says so."""
    return method + (f" → {deploy}" if deploy else "")


def _label(record: Record) -> str:
    return method_label(record.method, record.identity["study"]["deploy"])


def _rows(records: Sequence[Record], all_here: Sequence[Record]) -> list[Row]:
    """The rows of one method: one for each setting."""
    ignored = {"seed": None, "versions": None, "hardware": None}
    by_seed = sorted(records, key=lambda r: r.seed)
    settings = grouped(by_seed, lambda r: fingerprint(comparable(r.identity) | ignored))
    flats = {key: _by_entry(flat_settings(each[0].identity)) for key, each in settings.items()}
    rows = []
    for key, each in settings.items():
        paths = _distinguishing(flats[key], [other for name, other in flats.items() if name != key])
        label = _label(each[0]) + "".join(f", {_setting_text(path, flats[key][path])}" for path in paths)
        rows.append(make_row(label, each, all_here))
    return sorted(rows, key=lambda row: _sortable(row.label))


def _by_entry(settings: dict[str, Any]) -> dict[str, Any]:
    """The same, with a path for each field of tables in lists: `study.population.learners.1.noise`."""
    lists = {path: value for path, value in settings.items() if isinstance(value, list)}
    tables = {path: value for path, value in lists.items() if any(isinstance(each, dict) for each in value)}
    return flat(settings | {path: dict(enumerate(value)) for path, value in tables.items()})


def _setting_text(path: str, value: Any) -> str:
    """`skew = 20`; of a user's own file, its name and what tells its content from another's."""
    if path.startswith(("content.sources.", "content.files.")):
        return f"{path.split('.', 2)[2].rpartition('/')[2]} {value[:6]}"
    return f"{path.rpartition('.')[2]} = {value}"


def _distinguishing(own: dict[str, Any], others: Sequence[dict[str, Any]]) -> list[str]:
    """The paths that tell a row from the others; how often it was evaluated only if nothing else does."""
    every = [path for path, value in own.items() if any(o.get(path) != value for o in others)]
    plain = [path for path in every if not path.startswith("study.evaluation.")]
    doubled = any(all(o.get(path) == own[path] for path in plain) for o in others)
    return every if doubled else plain


def _sortable(label: str) -> list[Any]:
    """Numbers in a label by their size."""
    words = label.replace(",", "").split()
    number = re.compile(r"-?\d+(\.\d+)?(e[-+]?\d+)?", re.ASCII)
    return [(0, float(w), "") if number.fullmatch(w) else (1, 0.0, w) for w in words]


def flat_settings(identity: dict[str, Any]) -> dict[str, Any]:
    """Every setting of a run by its path: `study.training.refresh`, `settings.budget`, `device`."""
    skipped = ("seed", "method", "versions", "hardware")
    table = flat({name: value for name, value in comparable(identity).items() if name not in skipped})
    return {path: value for path, value in table.items() if path != "study.name"}


def flat(table: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """A table of tables as one, by paths: `{"a": {"b": 1}}` → `{"a.b": 1}`."""
    out: dict[str, Any] = {}
    for name, value in table.items():
        out |= flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {f"{prefix}{name}": value}
    return out


def make_row(label: str, records: Sequence[Record], among: Sequence[Record]) -> Row:
    """A row, with Independent's runs in the same worlds if all of them are among these, with scores."""
    good = [record for record in records if record.diverged is None]
    alone = [record for record in among if _label(record) == "independent" and record.diverged is None]
    by_world = grouped(alone, world_of)
    found = [_partner(record, by_world.get(world_of(record), [])) for record in good] if alone else []
    partners = [partner for partner in found if partner is not None]
    diverged = [record for record in records if record.diverged is not None]
    return Row(label, good, independent=partners if len(partners) == len(good) else [], diverged=diverged)


def _partner(record: Record, alone: Sequence[Record]) -> Record | None:
    """Which of the Independents in its world a run is compared with, whatever their order.

    One made on the same device, if there is one: another one's differs by rounding. Then the one that trains
    as the study says.
    """

    def rank(other: Record) -> tuple[bool, bool, str]:
        near = other.identity["device"] == record.identity["device"]
        return near, other.identity["settings"].get("lr") is None, other.key

    return max((other for other in alone if _same_models(other, record)), key=rank, default=None)


def _same_models(alone: Record, record: Record) -> bool:
    """Whether Independent had the same models and files of the user's; a method may bring sources of its own.

    The first runs did not say what their models were: they are compared among themselves.
    """
    theirs, ours = alone.identity["content"], record.identity["content"]
    models: dict[str, str] = theirs.get("sources", {})
    sources: dict[str, str] = ours.get("sources", {})
    learners = record.identity["study"]["population"]["learners"]
    known = models or all(":" not in learner["kind"] for learner in learners)
    same = models.items() <= sources.items() if ":" in record.method and known else models == sources
    return same and bool(theirs.get("files") == ours.get("files"))


def world_of(record: Record) -> str:
    """What makes two runs comparable node by node: same nodes, same test sets, same supervised steps.

    How much is withheld for validation is left out: test sets are cut first, and Independent trains on both.
    What the study only names is not in it: see `_same_models`.
    """
    study = record.identity["study"]
    parts = {name: study[name] for name in ("data", "graph", "population")}
    parts["partition"] = {k: v for k, v in study["partition"].items() if k != "val_fraction"}
    parts["training"] = {k: v for k, v in study["training"].items() if k != "refresh"}
    return fingerprint(parts | {"seed": record.seed})
