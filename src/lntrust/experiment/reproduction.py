"""The paper's tables and figures as TOML files: which runs they need, and what the paper says of them.

A reproduction names runs, not code. Its panels are tables: a study, and rows of a method with some settings.
Its claims are statements of the paper about rows, which `report.claims` holds against the runs.
"""

import json
import tomllib
from collections import defaultdict
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError, model_validator

from lntrust.core.errors import LNTrustError
from lntrust.core.text import did_you_mean
from lntrust.experiment.store.collection import Record, key_of, superseded_key
from lntrust.experiment.sweep.plan import Task
from lntrust.study.loading import explain, load_study
from lntrust.study.settings import Settings, Study
from lntrust.trust.features import FEATURES

FigureKind = Literal["communication", "bytes", "curves", "ablation", "importance", "trust", "topology", "map"]
Seed = Annotated[int, Field(ge=0)]


class PaperNumbers(Settings):
    """What the paper prints for a row."""

    test: float | None = None
    test_std: float | None = None
    self: float | None = None
    self_std: float | None = None
    gain: float | None = None  # Test − Stage 1


class RowSettings(Settings):
    """One line of a table."""

    label: str = Field(description="as the table has it; unique in its panel")
    method: str = Field("lntrust", description="a method's name")
    set: dict[str, Any] = Field(default_factory=dict, description="fields of the study: path → value")
    x: float | None = Field(None, description="where a figure of the panel's rows puts it")
    paper: PaperNumbers = Field(default_factory=PaperNumbers, description="the paper's numbers")


class Claim(Settings):
    """What the paper says about rows: that one is above others, or that some are alike."""

    says: str
    above: str | None = None  # a row that is better…
    below: list[str] = Field(default_factory=list)  # …than each of these
    alike: list[str] = Field(default_factory=list)  # rows of which no two differ by more than…
    to: str | None = None  # …or none from this one
    within: float = Field(0.01, gt=0)  # …this
    on: Literal["test", "self", "per_gb", "importance"] = "test"  # per_gb: Test per GB sent, queries apart
    of: str | None = None  # importance: the row whose trust features are compared, by their names
    ours: bool = False  # the paper does not say it: judged, and counted apart

    @property
    def names(self) -> list[str]:
        """What it speaks of: rows, or features of one."""
        return [name for name in (self.above, *self.below, *self.alike, self.to) if name is not None]

    @model_validator(mode="after")
    def _one_kind(self) -> "Claim":
        if bool(self.above and self.below) == bool(self.alike):
            raise ValueError("a claim needs either above and below, or alike")
        if self.to and not self.alike:
            raise ValueError("a claim's to is of those that are alike")
        if (self.on == "importance") != (self.of is not None):
            raise ValueError(
                "a claim on importance, and no other, needs of: a row whose features it compares"
            )
        unknown = [name for name in self.names if name not in FEATURES] if self.of else []
        if unknown:
            raise ValueError(f"a claim speaks of {unknown[0]!r}; features are {', '.join(FEATURES)}")
        return self


class Panel(Settings):
    """One table: rows of one study."""

    title: str
    study: str
    set: dict[str, Any] = Field(default_factory=dict, description="fields of the study, for all rows")
    seeds: list[Seed] | None = Field(None, min_length=1)
    shared_stage1: bool = Field(False, description="one Stage 1 for all rows that can share it")
    x: str | None = Field(None, description="what the rows' x is: the panel is an ablation")
    rows: list[RowSettings] = Field(min_length=1)
    claims: list[Claim] = Field(default_factory=list)
    both_readings: bool = Field(False, description="show it a second time, under the paper's reading")
    papers: int | None = Field(None, ge=0, description="it is that panel, by its number, a second time")

    @model_validator(mode="after")
    def _labels(self) -> "Panel":
        labels = [row.label for row in self.rows]
        if len(set(labels)) < len(labels):
            raise ValueError(f"panel {self.title}: row labels must differ, not {labels}")
        for claim in self.claims:
            for label in [claim.of] if claim.of else claim.names:
                if label not in labels:
                    raise ValueError(f"panel {self.title}: a claim speaks of {label!r}, which is no row")
        return self

    def study_of(self, row: RowSettings) -> Study:
        fields = self.set | row.set
        return load_study(self.study, [f"{path}={_toml(value)}" for path, value in fields.items()])

    def key(self, row: RowSettings) -> str:
        """What a row's runs are, whatever their seeds and wherever they were made."""
        return key_of({**self.task(row, [0], "cpu").identities[0], "seed": None})

    def superseded_key(self, row: RowSettings) -> str | None:
        """What its runs were before a correction; none: nothing of it was corrected."""
        return superseded_key(self.task(row, [0], "cpu").identities[0])

    def task(self, row: RowSettings, seeds: Sequence[int], device: str) -> Task:
        """The runs of a row."""
        return Task(
            study=self.study_of(row), method=row.method, seeds=list(seeds), device=device,
            setting={path: _toml(value) for path, value in (self.set | row.set).items()},
            share_stage1=self.shared_stage1,
        )  # fmt: skip

    def tasks(self, row: RowSettings, seeds: Sequence[int], device: str) -> list[Task]:
        """A task for each seed; on a GPU one for all of them in a stack."""
        stacks = [list(seeds)] if device == "cuda" else [[seed] for seed in seeds]
        return [self.task(row, stack, device) for stack in stacks]


class FigureSettings(Settings):
    """A picture of a panel's rows."""

    kind: FigureKind
    panel: int = 0
    node: int | None = None  # trust: whose
    seed: int = 0


class Reproduction(Settings):
    """A table or figure of the paper."""

    name: str
    title: str
    place: str = Field(description="where it stands in the paper")
    claim: str = Field(description="what the paper says, in our words")
    differences: str = Field("", description="what our protocol does otherwise, where it matters here")
    seeds: list[Seed] = Field(default_factory=lambda: [0, 1, 2], min_length=1)
    panels: list[Panel] = Field(min_length=1)
    figures: list[FigureSettings] = Field(default_factory=list)

    @model_validator(mode="before")
    @classmethod
    def _both_readings(cls, table: Any) -> Any:
        """A panel of both readings stands at the end a second time. Claims are judged on ours."""
        match table:
            case {"panels": [*panels]}:
                again = [
                    {**panel, "title": f"{panel.get('title')}, the paper's reading", "both_readings": False,
                     "set": {**panel.get("set", {}), "reading": "paper"}, "claims": [], "papers": number}
                    for number, panel in enumerate(panels)
                    if isinstance(panel, dict) and panel.get("both_readings")
                ]  # fmt: skip
                return {**table, "panels": [*panels, *again]}
        return table

    @model_validator(mode="after")
    def _panels(self) -> "Reproduction":
        for figure in self.figures:
            if figure.panel >= len(self.panels):
                raise ValueError(f"a figure speaks of panel {figure.panel}; there are {len(self.panels)}")
        return self

    def seeds_of(self, panel: Panel, asked: Sequence[int] = ()) -> list[int]:
        return sorted(set(asked or panel.seeds or self.seeds))

    def tasks(self, device: str, asked: Sequence[int] = ()) -> list[Task]:
        """All runs; on a GPU a row's seeds in one stack."""
        rows = [(panel, row, self.seeds_of(panel, asked)) for panel in self.panels for row in panel.rows]
        return [task for panel, row, seeds in rows for task in panel.tasks(row, seeds, device)]


def _toml(value: Any) -> str:
    """A value as the command line would have it."""
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{json.dumps(k)} = {_toml(v)}' for k, v in value.items())}}}"
    return json.dumps(value)  # TOML writes strings and numbers as JSON does


def list_reproductions() -> dict[str, Path]:
    """The paper's tables and figures, by name, in the order they are made."""
    folder = Path(str(resources.files("lntrust") / "studies" / "paper"))
    return {path.stem.partition("-")[2]: path for path in sorted(folder.glob("*.toml"))}


def load_reproduction(name: str) -> Reproduction:
    """By its name, or from a .toml file of one's own."""
    known = list_reproductions()
    path = known.get(name, Path(name))
    if path.suffix != ".toml":
        hint, names = did_you_mean(name, known), ", ".join(known)
        raise LNTrustError(f"reproduction {name}: {hint}Must be all, a .toml file, or one of {names}")
    try:
        table = tomllib.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise LNTrustError(f"{path}: not a readable TOML file: {error}") from None
    if "panels" not in table:
        raise LNTrustError(
            f"{path}: has no panels, so it is no reproduction; for a study: lntrust run {path}"
        )
    for panel in table["panels"]:  # a study of one's own is looked for beside the file
        beside = path.parent / str(panel.get("study", ""))
        if beside.suffix == ".toml" and beside.is_file():
            panel["study"] = str(beside)
    try:
        return Reproduction.model_validate({"name": name if name in known else path.stem, **table})
    except ValidationError as error:
        raise LNTrustError(explain(error, str(path), Reproduction)) from None


def given_and_missing(
    chosen: Sequence[Reproduction], seeds: Sequence[int], given: Sequence[Record], device: str,
    methods: Sequence[str] = (),
) -> tuple[list[Record], list[Task]]:  # fmt: skip
    """Which of the given runs serve, and what is to be made; of these methods, or of all.

    A row of which not all seeds were given, made on one device, is made anew: numbers of two are not mixed.
    """
    by_row: dict[str, dict[str, list[Record]]] = defaultdict(lambda: defaultdict(list))
    for record in given:
        by_row[record.row_key][record.identity["device"]].append(record)
    kept: dict[int, Record] = {}
    tasks: dict[str, Task] = {}
    rows = [(one.seeds_of(p, seeds), p, row) for one in chosen for p in one.panels for row in p.rows]
    known = list(dict.fromkeys(row.method for *_, row in rows))
    for name in [name for name in methods if name not in known]:
        hint = did_you_mean(name, known)
        raise LNTrustError(f"--method {name}: {hint}Rows there are of {', '.join(known)}")
    for wanted, panel, row in rows:
        if methods and row.method not in methods:
            continue
        same = [[r for r in some if r.seed in wanted] for some in by_row[panel.key(row)].values()]
        found = next((some for some in same if len(some) == len(wanted)), [])
        kept |= {id(record): record for record in found}
        for task in [] if found else panel.tasks(row, wanted, device):
            tasks.setdefault(str(task.folders), task)
    return list(kept.values()), list(tasks.values())
