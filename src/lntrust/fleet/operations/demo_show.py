"""The demonstration for people: progress while it runs, tables and a sentence in the end."""

from collections.abc import Iterator

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from lntrust.fleet.operations.demo import DemoResult, NodeResult, PhaseResult, Show, Statuses
from lntrust.fleet.operations.demo_data import MODELS, STAGE1, STAGE2, TEST

KINDS = ("query", "reply", "framing")


class Watch:
    """A bar for each node, and a line for each thing that happens."""

    def __init__(self, console: Console, count: int) -> None:
        self._bars = Progress(
            TextColumn("{task.description}"), BarColumn(24), TextColumn("{task.completed}/{task.total}"),
            TextColumn("{task.fields[state]}"), TimeElapsedColumn(), console=console, transient=True,
        )  # fmt: skip
        self._tasks = {
            f"node-{i + 1}": self._bars.add_task(
                f"node-{i + 1}  {MODELS[i].about}", total=STAGE1 + STAGE2, state="starts"
            )
            for i in range(count)
        }
        self.show = Show(self._said, self._nodes)

    def __enter__(self) -> Show:
        self._bars.start()
        return self.show

    def __exit__(self, *_: object) -> None:
        self._bars.stop()

    def _said(self, text: str) -> None:
        self._bars.console.print(text, highlight=False)

    def _nodes(self, statuses: Statuses) -> None:
        for name, task in self._tasks.items():
            status = statuses.get(name)
            if name not in statuses:
                self._bars.update(task, state="[red]down")
            elif status is None:
                self._bars.update(task, state="starts")
            else:
                self._bars.update(task, completed=status["round"], state=status["phase"])


def shown(result: DemoResult) -> Iterator[Table | Text]:
    """Three tables, what went wrong, and what is to be said of it."""
    yield _models(result)
    yield _traffic(result)
    yield _answers(result)
    for error in result.errors[:10]:
        yield Text(f"not answered: {error}", style="red")
    yield Text(closing(result))


def _models(result: DemoResult) -> Table:
    table = Table(title="Each node on its own test set, in the end", title_justify="left")
    for heading in ("node", "model", "self", "deployed", "members", "own weight"):
        table.add_column(heading, justify="left" if heading in ("node", "model") else "right")
    for each in result.nodes:
        if each.alone is None:
            table.add_row(each.name, each.model, "down", "down", "", "")
        else:
            table.add_row(
                each.name, each.model, f"{each.alone:.2f}", f"{each.deployed:.2f}", str(each.members),
                f"{each.own_weight:.2f}",
            )  # fmt: skip
    return table


def _traffic(result: DemoResult) -> Table:
    table = Table(title="Bytes between nodes, by kind", title_justify="left")
    table.add_column("node")
    for way in ("out", "in"):
        for kind in KINDS:
            table.add_column(f"{kind} {way}", justify="right")
    for each in result.nodes:
        if each.bytes is not None:
            cells = [bytes_text(each.bytes[way][kind]) for way in ("out", "in") for kind in KINDS]
            table.add_row(each.name, *cells)
    return table


def _answers(result: DemoResult) -> Table:
    table = Table(title="How answers to clients held up", title_justify="left")
    table.add_column("phase")
    for heading in ("asked", "answered", "deployed", "self", "p50", "p99", "members"):
        table.add_column(heading, justify="right")
    for each in result.phases:
        table.add_row(
            each.phase, str(each.questions), share(each), f"{each.deployed:.3f}", f"{each.alone:.3f}",
            f"{1000 * each.p50:.0f} ms", f"{1000 * each.p99:.0f} ms", f"{each.members:.1f}",
        )  # fmt: skip
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


def bytes_text(count: float) -> str:
    for unit in ("B", "kB", "MB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} GB"
