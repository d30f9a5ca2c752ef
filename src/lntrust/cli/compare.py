"""`lntrust compare` and `lntrust collect`: finished runs as tables, and as one file."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from lntrust.cli.options import Debug, out
from lntrust.core.errors import LNTrustError

if TYPE_CHECKING:
    from lntrust.report.sections import Section

RunPaths = Annotated[
    list[Path],
    typer.Argument(
        metavar="RUNS",
        help="Folders with runs at any depth, and collections (.parquet, by `lntrust collect`). "
        "What is in several of them counts once.",
    ),
]
_SUFFIXES = (".md", ".tex", ".parquet")


def compare(
    runs: RunPaths,
    to: Annotated[
        list[Path] | None,
        typer.Option(
            "--out", "-o", metavar="FILE",
            help="Also write the tables: .md, .tex (needs booktabs) or .parquet (a row per row, with more "
            "columns); may be given several times.",
        ),
    ] = None,
    by_study: Annotated[
        bool, typer.Option("--by-study", help="A table per study with all its runs, not the paper's tables.")
    ] = False,
    debug: Debug = False,
) -> None:  # fmt: skip
    """Show finished runs side by side.

    First the paper's tables, as far as they were run; then a table per study
    for what is in none of them. The columns:

    Test: accuracy of the deployed nodes on their own test sets, mean over
    nodes, ± standard deviation over seeds. The best is bold.

    Self: the same of each node's own model alone.

    gain: Test − Self at the end of Stage 1 (where the paper has it).

    Δ Indep.: Test − that of Independent, whose nodes never speak, in the same
    worlds. In brackets, where it lies with 95 % confidence (seeds and nodes
    resampled; with only three seeds somewhat less than that).

    10 %: the accuracy that nine of ten nodes reach.

    harmed: share of nodes worse off deployed than with their own model.

    P: the chance that a node scores higher than under Independent; ties
    count half.

    GB per node: sent in training, framing included.

    asked: neighbours that a deployed node asks about an input. Left out in
    narrow terminals, and where runs do not tell it.

    A run that diverged is in no number; its row says which seed, and when.

    10 %, harmed and P are judged on the union of all test sets, weighted by
    each node's classes, unless test sets overlap with training sets.
    """
    from lntrust.experiment.store import read_runs
    from lntrust.report.rows import rows_of
    from lntrust.report.sections import Section, sections_of
    from lntrust.report.text import terminal

    for path in to or []:
        _check_suffix(path, _SUFFIXES)
    records = read_runs(runs)
    if by_study:
        sections = [Section(name, name, name, rows) for name, rows in rows_of(records).items()]
    else:
        sections = sections_of(records)
    for section in sections:
        out.print(terminal(section, out.width))
        say_verdicts(section)
    for path in to or []:
        write_tables(path, sections)
        out.print(f"{path}: written", highlight=False, markup=False, soft_wrap=True)


def say_verdicts(section: "Section") -> None:
    """What the paper says of the rows, and whether ours say it, too."""
    for verdict in section.verdicts:
        words = escape(f"{verdict.says}\n  {verdict.words}")
        out.print(f"[bold]{verdict.outcome}[/bold]: {words}", highlight=False)
    if section.verdicts:
        out.print()


def write_tables(path: Path, sections: "Sequence[Section]") -> None:
    """One file of all tables, by its suffix."""
    import pyarrow.parquet as pq

    from lntrust.core.files import write_whole
    from lntrust.report.text import arrow, latex, markdown

    write: Callable[[Path], object]
    if path.suffix == ".parquet":
        write = partial(pq.write_table, arrow(sections))
    else:
        text = "\n".join(map(markdown if path.suffix == ".md" else latex, sections))

        def write(temporary: Path) -> object:
            return temporary.write_text(text, "utf-8")

    write_whole(path, write)


def _check_suffix(path: Path, suffixes: Sequence[str]) -> None:
    if path.suffix not in suffixes:
        *firsts, last = suffixes
        expected = f"{', '.join(firsts)} or {last}" if firsts else last
        raise LNTrustError(f"--out {path}: must end in {expected}")
    if path.is_dir():
        raise LNTrustError(f"--out {path}: is a folder; must be a file, or a name for a new one")


def collect(
    runs: RunPaths,
    to: Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="The collection: a .parquet file.")],
    thin: Annotated[
        bool, typer.Option("--thin", help="Of the nodes' trust keep the last refresh only, not its course.")
    ] = False,
    debug: Debug = False,
) -> None:
    """Gather finished runs in one file, to keep or to send.

    `lntrust compare`, `report` and `figures` take it as they take folders. Checkpoints and stored
    predictions are not in it, so that it is a hundredth of their size or less.
    """
    from lntrust.experiment.store import read_runs, write_collection
    from lntrust.report.table import human_bytes

    _check_suffix(to, (".parquet",))
    records = read_runs(runs)
    write_collection(records, to, thin)
    methods, studies = {record.method for record in records}, {record.study for record in records}
    counts = [(len(records), "run", "runs"), (len(methods), "method", "methods")]
    counts += [(len(studies), "study", "studies")]
    told = ", ".join(f"{count} {one if count == 1 else many}" for count, one, many in counts)
    size = human_bytes(to.stat().st_size)
    out.print(f"{to}: {told}, {size}", highlight=False, markup=False, soft_wrap=True)
