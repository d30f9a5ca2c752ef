"""What tests of figures share: rows a little changed, and what stands in a drawing."""

import dataclasses
from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.container import BarContainer
from matplotlib.figure import Figure
from matplotlib.text import Annotation

from lntrust.experiment.store import Record
from lntrust.report.rows import Row


def by_method(rows: Sequence[Row]) -> dict[str, Row]:
    return {row.first.method: row for row in rows}


def one_seed(row: Row) -> Row:
    return dataclasses.replace(row, records=row.records[:1], independent=None)


def changed(record: Record, **summary: Any) -> Record:
    """The same run with another summary."""
    return dataclasses.replace(record, summary={**record.summary, **summary})


def texts(axes: Axes) -> list[str]:
    return [note.get_text() for note in axes.texts if isinstance(note, Annotation)]


def bars(axes: Axes) -> dict[str, float]:
    """Lengths of lying bars by the names beside them."""
    names = [tick.get_text() for tick in axes.get_yticklabels()]
    [container] = [c for c in axes.containers if isinstance(c, BarContainer)]
    return dict(zip(names, [patch.get_width() for patch in container], strict=True))


def footnote(figure: Figure) -> str:
    return " ".join(figure.get_supxlabel().split())


def renamed(row: Row, method: str) -> Row:
    """The same runs under another method's name."""
    records = [dataclasses.replace(r, identity={**r.identity, "method": method}) for r in row.records]
    return dataclasses.replace(row, records=records)


def preset(rows: Sequence[Row], name: str, **bytes_: Any) -> Row:
    """LNTrust's runs under the name of a preset; what they send may be changed."""
    row = renamed(by_method(rows)["lntrust"], f"lntrust+{name}")
    sent = [changed(record, bytes={**record.summary["bytes"], **bytes_}) for record in row.records]
    return dataclasses.replace(row, label=f"lntrust+{name}", records=sent)


def variant(row: Row, label: str, x: float | None = None, **settings: Any) -> Row:
    def other(record: Record) -> Record:
        identity = {**record.identity, "settings": {**record.identity["settings"], **settings}}
        return dataclasses.replace(record, identity=identity)

    return dataclasses.replace(row, label=label, x=x, records=[other(record) for record in row.records])
