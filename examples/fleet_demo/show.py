"""The demonstration for people: progress while it runs, tables and a sentence in the end."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from examples.fleet_demo.demo import DemoResult, NodeResult, PhaseResult, Statuses
from examples.fleet_demo.nodes import MODELS, STAGE1, STAGE2, TEST
from lntrust.core.text import bytes_text

KINDS = ("query", "reply", "framing")


class Watch:
    """A bar for each node, and a line for each thing that happens."""

    def __init__(self, console: Console, count: int) -> None:
        self._bars = Progress(
            TextColumn("{task.description}"), BarColumn(24), TextColumn("{task.completed}/{task.total}"),
            TextColumn("{task.fields[state]}"), TimeElapsedColumn(), console=console, transient=True,
        )  # fmt: skip
        names = {f"node-{i + 1}": model for i, model in enumerate(list(MODELS)[:count])}
        self._tasks = {
            name: self._bars.add_task(f"{name}  {model}", total=STAGE1 + STAGE2, state="starts")
            for name, model in names.items()
        }

    def __enter__(self) -> Self:
        self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bars.stop()

    def say(self, text: str) -> None:
        self._bars.console.print(text, highlight=False)

    def look(self, statuses: Statuses) -> None:
        for name, task in self._tasks.items():
            status = statuses.get(name)
            if status is not None:
                self._bars.update(task, completed=status["round"], state=status["phase"])
            else:
                self._bars.update(task, state="starts" if name in statuses else "[red]down")


def shown(result: DemoResult) -> Iterator[Table | Text]:
    """Three tables, what went wrong, and what is to be said of it."""
    yield _table(
        "Each node on its own test set, in the end",
        ("node", "model"),
        ("self", "deployed", "members", "own weight"),
        (
            [n.name, n.model, *(
                ["down", "down", "", ""] if n.alone is None
                else [f"{n.alone:.2f}", f"{n.deployed:.2f}", str(n.members), f"{n.own_weight:.2f}"]
            )]
            for n in result.nodes
        ),
    )  # fmt: skip
    ways = [(kind, way) for way in ("out", "in") for kind in KINDS]
    yield _table(
        "Bytes between nodes, by kind",
        ("node",),
        [f"{kind} {way}" for kind, way in ways],
        (
            [n.name, *(bytes_text(n.bytes[way][kind]) for kind, way in ways)]
            for n in result.nodes if n.bytes is not None
        ),
    )  # fmt: skip
    yield _table(
        "How answers to clients held up",
        ("phase",),
        ("asked", "answered", "deployed", "self", "p50", "p99", "members"),
        (
            [
                p.phase, str(p.questions), share(p), f"{p.deployed:.3f}", f"{p.alone:.3f}",
                f"{1000 * p.p50:.0f} ms", f"{1000 * p.p99:.0f} ms", f"{p.members:.1f}",
            ]
            for p in result.phases
        ),
    )  # fmt: skip
    for error in result.errors[:10]:
        yield Text(f"not answered: {error}", style="red")
    yield Text(closing(result))


def _table(title: str, names: Sequence[str], numbers: Sequence[str], rows: Iterable[list[str]]) -> Table:
    table = Table(*names, title=title, title_justify="left")
    for heading in numbers:
        table.add_column(heading, justify="right")
    for row in rows:
        table.add_row(*row)
    return table


def share(phase: PhaseResult) -> str:
    """In percent; 100 only if none is missing."""
    if phase.answered == phase.questions:
        return "100 %"
    return f"{min(99.9, 100 * phase.answered / phase.questions):.1f} %"


def closing(result: DemoResult) -> str:
    """What the numbers say, whatever they are."""
    asked = sum(each.questions for each in result.phases)
    answered = sum(each.answered for each in result.phases)
    back, gone = result.killed
    all_ = "all" if answered == asked else f"only {answered}"
    return (
        f"Of {asked} questions to nodes that were up, {all_} were answered; {back} and {gone} were killed "
        f"meanwhile. {_compared(result.nodes)} {_continued(result)} It took {result.seconds:.0f} s."
    )


def _compared(nodes: list[NodeResult]) -> str:
    """Who gains by the others, and who loses."""
    pairs = [(n.deployed, n.alone) for n in nodes if n.deployed is not None and n.alone is not None]
    better, worse = sum(d > a for d, a in pairs), sum(d < a for d, a in pairs)
    deployed, alone = (sum(column) / len(pairs) for column in zip(*pairs, strict=True))
    return (
        f"Answering with whom they trust, the nodes are right on {deployed:.3f} of their test inputs, by "
        f"themselves on {alone:.3f}; {better} of {len(pairs)} are better for it, {worse} worse, "
        f"{len(pairs) - better - worse} the same, on {TEST} test inputs each."
    )


def _continued(result: DemoResult) -> str:
    back, saved, resumed = result.killed[0], result.saved_round, result.resumed_round
    if resumed >= saved:
        return f"{back} came back and went on from round {saved}, which it had saved."
    return f"{back} came back at round {resumed}, though it had saved round {saved}: it did NOT go on."
