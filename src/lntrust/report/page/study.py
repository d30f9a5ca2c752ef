"""What a page is made from, exactly: settings, commands, versions, machines."""

import json
import shlex
from collections import Counter
from collections.abc import Sequence
from typing import Any

from lntrust.core.errors import LNTrustError
from lntrust.experiment.reproduction import list_reproductions
from lntrust.experiment.store import Record, identity
from lntrust.methods import find_method
from lntrust.report.page.html import Html, h
from lntrust.report.page.tables import anchor
from lntrust.report.rows import Row
from lntrust.report.sections import Section
from lntrust.study.loading import list_studies, load_study

_DECIDED_ELSEWHERE = ("name", "evaluation.checkpoint_every", "data.content")  # --data decides the last


def section_study(section: Section, told: dict[str, str]) -> Html:
    """How to run a section again, and each row's settings in full, unless an earlier section has told them.

    `told`: which section has told which rows; is added to.
    """
    name = _reproduction(section)
    again = [h("p", "All of this table: ", h("code", f"lntrust reproduce {name}"))] if name else []
    rows: list[Html] = []
    for row in section.rows:
        key, here = f"{row.first.row_key} {_seeds(row)}", f"{anchor(section)}-study"
        if told.setdefault(key, here) == here:
            rows.append(
                h("details", h("summary", row.label), h("pre", h("code", run_command(row))), _settings(row))
            )
        else:
            rows.append(
                h("p", f"{row.label}: the runs of ", h("a", "an earlier section", href=f"#{told[key]}"))
            )
    return h("details", h("summary", "The exact study: commands and settings"), again, rows, class_="study",
             id=f"{anchor(section)}-study")  # fmt: skip


def _seeds(row: Row) -> list[int]:
    """Also of runs that diverged: they are made again like the others."""
    return [record.seed for record in row.runs]


def _settings(row: Row) -> Html:
    kept = {k: v for k, v in row.first.identity.items() if k not in ("seed", "versions", "hardware")}
    return h("pre", h("code", json.dumps({**kept, "seeds": _seeds(row)}, indent=1, ensure_ascii=False)))


def _reproduction(section: Section) -> str | None:
    """The reproduction that a section is a panel of."""
    if not section.place:
        return None
    stem, _, number = section.name.rpartition("-")
    names = [section.name, *([stem] if number.isdecimal() else [])]
    return next((name for name in names if name in list_reproductions()), None)


def run_command(row: Row) -> str:
    """`lntrust run …` that makes a row's runs; of a study that is not shipped, with a file of its name."""
    first = row.first
    changes = _changes(first) if first.study in list_studies() else None
    words = ["lntrust", "run", first.study if changes is not None else f"{first.study}.toml"]
    words += ["--method", first.method]
    for seed in _seeds(row):
        words += ["--seed", str(seed)]
    for change in changes or []:
        words += ["--set", change]
    return shlex.join([*words, "--device", first.identity["device"]])


def _changes(record: Record) -> list[str] | None:
    """What was set on top of a shipped study; None if that cannot be said on a command line."""
    try:
        study = load_study(record.study)
        plain = identity(study, record.method, find_method(record.method, study), record.seed, "cpu")
    except LNTrustError:
        return None
    ours = {**record.identity["study"], "methods": {record.method: record.identity["settings"]}}
    theirs = {**plain["study"], "methods": {record.method: plain["settings"]}}
    ours.setdefault("reading", "honest")
    theirs.setdefault("reading", "honest")
    flat, known = _flat(ours), _flat(theirs)
    flat = {k: v.removesuffix(" (superseded)") if isinstance(v, str) else v for k, v in flat.items()}
    changed = {k: v for k, v in flat.items() if known.get(k) != v and k not in _DECIDED_ELSEWHERE}
    if any(isinstance(value, list | dict) for value in changed.values()):
        return None
    return [f"{path}={_word(value)}" for path, value in changed.items()]


def _flat(table: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    out: dict[str, Any] = {}
    for name, value in table.items():
        out |= _flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {f"{prefix}{name}": value}
    return out


def _word(value: object) -> str:
    if value is None:
        return "none"
    return str(value).lower() if isinstance(value, bool) else str(value)


# -- machines -------------------------------------------------------------------------------------


def machines(records: Sequence[Record]) -> Html:
    """On what the runs were made: one line for every kind of machine and set of versions."""
    counts = Counter(json.dumps(_machine(record)) for record in records)
    seconds: Counter[str] = Counter()
    for record in records:
        seconds[json.dumps(_machine(record))] += record.summary["seconds"]
    known = [(json.loads(text), count, seconds[text]) for text, count in counts.most_common()]
    names = list(dict.fromkeys(name for machine, _, _ in known for name in machine))
    head = h("tr", [h("th", name, scope="col") for name in ("runs", "hours", *names)])
    lines = [
        h("tr", h("td", str(count)), h("td", f"{spent / 3600:.2f}"),
          [h("td", str(machine.get(name, "–"))) for name in names])
        for machine, count, spent in known
    ]  # fmt: skip
    table = h(
        "table", h("caption", "Machines and versions"), h("thead", head), h("tbody", lines), class_="plain"
    )
    return h("div", table, class_="scroll", tabindex=0, role="region", aria_label="Table: machines")


def _machine(record: Record) -> dict[str, Any]:
    of = record.identity
    told = {
        "device": of["device"],
        "backend": of["backend"],
        **of.get("hardware", {}),
        **of.get("versions", {}),
    }
    return {name: "–" if value is None else value for name, value in told.items()}
