"""What a page or a folder of figures is made of: the paper's tables as they were run, then the rest."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from lntrust.experiment.reproduction import (
    FigureSettings,
    Panel,
    Reproduction,
    list_reproductions,
    load_reproduction,
)
from lntrust.experiment.statistics import Interval, seed_interval
from lntrust.experiment.store import Record, superseded_key
from lntrust.methods.lntrust.presets import names as preset_names
from lntrust.network.codec import KINDS
from lntrust.report.claims import Verdict, against_paper, judge
from lntrust.report.hubs import hubs_of
from lntrust.report.nodes import On, difference, differences
from lntrust.report.rows import Row, flat_settings, grouped, main_row, make_row, rows_of, world_of


@dataclass(frozen=True)
class Section:
    """One table: of the paper, or simply all runs of a study."""

    name: str  # for links and files: sparse-1, digits
    title: str
    study: str
    rows: list[Row]
    place: str = ""  # where it stands in the paper, if it does
    claim: str = ""  # what the paper says
    differences: str = ""  # what our protocol does otherwise
    reproduction: str = ""  # whose panel it is
    x: str | None = None  # what an ablation varies; its rows have an x each
    verdicts: list[Verdict] = field(default_factory=list)
    figures: list[FigureSettings] = field(default_factory=list)

    @property
    def counts(self) -> bool:
        """Whether its verdicts are on the paper's claims as we read them: not under another reading, too."""
        return bool(self.place) and "reading" not in self.rows[0].first.identity["study"]

    @property
    def counted(self) -> list[Verdict]:
        """The verdicts on claims that the paper makes."""
        return [verdict for verdict in self.verdicts if self.counts and not verdict.ours]

    @property
    def main(self) -> Row | None:
        """The row that stands for LNTrust, where there is one."""
        return main_row(self.rows)

    @property
    def seeds(self) -> list[int]:
        """All that any row has."""
        return sorted({record.seed for row in self.rows for record in row.runs})


def sections_of(
    records: Sequence[Record], reproductions: Sequence[Reproduction] | None = None
) -> list[Section]:
    """The paper's tables of which more than half was run, and a section per study for what is in none."""
    if reproductions is None:
        reproductions = [load_reproduction(name) for name in list_reproductions()]
    out: list[Section] = []
    for reproduction in reproductions:
        for number, panel in enumerate(reproduction.panels):
            one_seed = reproduction.seeds if len(reproduction.seeds) == 1 else []  # a picture of one world
            rows = panel_rows(panel, records, one_seed)
            if 2 * len(rows) > len(panel.rows):
                out.append(_section(reproduction, number, rows))
    shown = {id(record) for section in out for row in section.rows for record in row.runs}
    rest = [record for record in records if id(record) not in shown]
    # Independent of the same study stands beside what is left, to be compared with.
    studies = {record.study for record in rest}
    beside = [r for r in records if r.study in studies and r.method == "independent" and id(r) in shown]
    by_study = rows_of([*beside, *_beside_presets(rest, out), *rest])
    return out + [Section(name, name, name, rows) for name, rows in by_study.items()]


def _beside_presets(rest: Sequence[Record], sections: Sequence[Section]) -> list[Record]:
    """LNTrust and every baseline as published, in the worlds in which presets of LNTrust were run.

    Presets stand in none of the paper's tables, and are nothing without what they are held against.
    """
    worlds = {(record.study, world_of(record)) for record in rest if record.method in preset_names()}
    published = [row for section in sections for row in section.rows if row.published]
    found = [record for row in published for record in row.runs if record.method != "independent"]
    apart = {record.key + record.identity["device"]: record for record in found}
    return [record for record in apart.values() if (record.study, world_of(record)) in worlds]


def sections_of_one(
    reproduction: Reproduction, records: Sequence[Record], seeds: Sequence[int] = ()
) -> list[Section]:
    """The tables of one reproduction, as far as they were run."""
    found = [panel_rows(panel, records, reproduction.seeds_of(panel, seeds)) for panel in reproduction.panels]
    return [_section(reproduction, number, rows) for number, rows in enumerate(found) if rows]


def _section(reproduction: Reproduction, number: int, rows: list[Row]) -> Section:
    panel = reproduction.panels[number]
    several = len([each for each in reproduction.panels if each.papers is None]) > 1
    own = number if panel.papers is None else panel.papers
    name = f"{reproduction.name}-{own + 1}" if several else reproduction.name
    return Section(
        name=name if panel.papers is None else f"{name}-paper",
        title=f"{reproduction.title}: {panel.title}" if several or own != number else reproduction.title,
        study=panel.study, rows=rows, place=reproduction.place, claim=reproduction.claim,
        differences=reproduction.differences, reproduction=reproduction.name, x=panel.x,
        verdicts=[judge(claim, rows) for claim in panel.claims],
        figures=[figure for figure in reproduction.figures if figure.panel == number],
    )  # fmt: skip


def panel_rows(panel: Panel, records: Sequence[Record], seeds: Sequence[int] = ()) -> list[Row]:
    """The rows of a panel that were run, with the paper's numbers.

    Runs of before a correction stand in for those that were not made since; such a row says so.
    """
    wanted = [record for record in records if not seeds or record.seed in seeds]
    wanted = sorted(wanted, key=lambda record: record.seed)
    by_key = grouped(wanted, lambda record: record.row_key)
    old = grouped([r for r in wanted if r.superseded], lambda r: superseded_key(r.identity) or "")
    rows = []
    for row in panel.rows:
        there = by_key.get(panel.key(row)) or old.get(panel.superseded_key(row) or "", [])
        # Of runs on several devices, those of the one that has most seeds: numbers of two are not mixed.
        devices = grouped(there, lambda record: record.identity["device"])
        if found := max(devices.values(), key=len, default=[]):
            numbers = row.paper.model_dump(exclude_none=True)
            made = make_row(row.label, found, records)
            rows.append(replace(made, paper=numbers, x=row.x, published=not row.set))
    return rows


# -- as one flat table, for Parquet ---------------------------------------------------------------

_SPREADS = ("test", "self", "test_pooled", "self_pooled", "stage1")
_NUMBERS = (
    *(f"{score}_{part}" for score in _SPREADS for part in ("mean", "std")),
    "gain_mean", "last_round_test_mean", "best_round_test_selected_mean",
    *(f"{name}_{part}" for name in ("difference", "pooled_difference", "leaves_gain")
      for part in Interval._fields),
    *(f"{name}_t_{part}" for name in ("difference", "pooled_difference") for part in ("low", "high")),
    "hubs_self_mean", "leaves_self_mean",
    "members_trust", "members_equal", "teachers_trust", "teachers_equal",  # of leaves' trust, what is on hubs
    "p10", "harmed", "below_independent", "improvement",  # by what single nodes are judged by
    *(f"{name}_{on}{part}" for name in ("harmed", "below_independent") for on in ("own", "pooled")
      for part in ("", "_by_a_point")),
    *(f"gb_{kind}" for kind in (*KINDS, "framing", "total")),
    *(f"gb_headers_{kind}" for kind in KINDS),
    "accuracy_per_gb_reply", "bytes_per_answer", "asked_per_input", "seconds",
    *(f"paper_{name}" for name in ("test", "test_std", "self", "self_std", "gain")),
)  # fmt: skip
_SETS: dict[str, On] = {"own": "test", "pooled": "test_pooled"}
_WORDS = ("section", "study", "label", "method", "deploy", "setting", "device")
SCHEMA = pa.schema(
    [
        *((name, pa.string()) for name in _WORDS),
        ("seeds", pa.list_(pa.int64())),
        ("superseded", pa.bool_()),  # run before what it runs was corrected
        ("diverged", pa.string()),  # in words; the numbers are of the seeds that have not
        ("test_is_test_selected", pa.bool_()),
        ("nodes_judged_on_own_tests", pa.bool_()),
        *((name, pa.float64()) for name in _NUMBERS),
        ("against_paper", pa.string()),
    ]
)


def arrow(sections: Sequence[Section]) -> pa.Table:
    """One flat row per row of the tables. Bytes are per node in training, in GB. Runs made before headers
    were counted by kind have none there; `gb_framing` is all of them."""
    rows = [_flat_row(section, row) for section in sections for row in section.rows]
    return pa.Table.from_pylist(rows, schema=SCHEMA)  # of each row, what the schema names


def _flat_row(section: Section, row: Row) -> dict[str, object]:
    identity, test, reply = row.first.identity, row.test, row.gigabytes("reply")
    parted: dict[str, Any] = {
        **{name: row.spread(name) for name in (*_SPREADS, "best_round_test_selected")},
        "test": test, "gain": row.gain, "last_round_test": row.spread("test"), "difference": row.difference,
        "pooled_difference": difference(row.records, row.independent, "test_pooled"),
        **(vars(hubs) if (hubs := hubs_of(row)) else {}),
        "difference_t": seed_interval(differences(row.records, row.independent, "test") or []),
        "pooled_difference_t": seed_interval(differences(row.records, row.independent, "test_pooled") or []),
    }  # fmt: skip
    numbers = {f"{name}_{part}": value for name, found in parted.items() if found
               for part, value in found._asdict().items()}  # fmt: skip
    shares = {"harmed": row.harmed, "below_independent": row.below_independent}
    for on, score in _SETS.items():
        shares |= {f"harmed_{on}": row.harmed_on(score)}
        shares |= {f"below_independent_{on}": row.below_independent_on(score)}
    sent = {
        **{f"gb_{kind}": row.gigabytes(kind) for kind in (*KINDS, "framing", "total")},
        **{f"gb_headers_{kind}": row.headers(kind) for kind in KINDS},
        "bytes_per_answer": row.bytes_per_answer,
    }
    return {
        "section": section.name, "study": row.first.study, "label": row.label, "method": row.method,
        "deploy": identity["study"]["deploy"], "setting": json.dumps(flat_settings(identity)),
        "device": identity["device"], "seeds": row.seeds, "superseded": row.superseded,
        "diverged": row.what_diverged or None,
        "test_is_test_selected": row.test_selected, **numbers,
        "nodes_judged_on_own_tests": row.on_own_tests, "p10": row.p10, "improvement": row.improvement,
        **{f"{name}{part}": value for name, found in shares.items() if found
           for part, value in zip(("", "_by_a_point"), found, strict=True)},
        **(sent if row.records else {}),  # what was sent until it diverged is no method's price
        "accuracy_per_gb_reply": None if test is None or not reply else test.mean / reply,
        "asked_per_input": row.asked, "seconds": row.seconds,
        **{f"paper_{name}": number for name, number in row.paper.items()},
        "against_paper": against_paper(row),
    }  # fmt: skip
