"""`lntrust compare`, `collect`, `report`, `figures`: finished runs as tables, one file, a page, pictures."""

import shlex
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from rich.markup import escape
from typer import Option

from lntrust.cli import options
from lntrust.cli.console import out, say
from lntrust.core.errors import LNTrustError
from lntrust.core.text import bytes_text, count_text

if TYPE_CHECKING:
    from lntrust.report import Section


def compare(
    runs: options.RunPaths,
    to: Annotated[
        list[Path] | None,
        Option(
            "--out", "-o", metavar="FILE",
            help="Also write the tables: .md, .tex (needs booktabs) or .parquet (a row per row, with more "
            "columns); may be given several times.",
        ),
    ] = None,
    by_study: Annotated[
        bool, Option("--by-study", help="A table per study with all its runs, not the paper's tables.")
    ] = False,
    debug: options.Debug = False,
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

    harmed: share of nodes worse off deployed than with their own model,
    after the same training.

    below Indep.: share of nodes that score lower than under Independent of
    the same seed, pooled and on their own test sets; in brackets, by more
    than a point.

    P: the chance that a node scores higher than under Independent; ties
    count half.

    GB per node: sent in training, framing included.

    asked: neighbours that a deployed node asks about an input, where runs
    tell it.

    A narrow terminal shows fewer columns; long names are broken.

    A run that diverged is in no number; its row says which seed, and when.

    10 %, harmed and P are judged on the union of all test sets, weighted by
    each node's classes, unless test sets overlap with training sets; where
    nodes are places or people, on their own test sets, and harmed has the
    pooled share beside it.

    Below a table of the paper: what became of its claims. Two 95 % intervals
    judge, the one in brackets and, after t, Student's over the seeds' means,
    which three seeds make wide. A claim that a row is above another holds
    where both lie above zero, one that rows are alike where both lie inside
    the margin named; it does not hold where both lie wholly on the other side
    or outside; else it is undecided.
    """
    from lntrust.experiment.store import read_runs
    from lntrust.report import sections_of

    for path in to or []:
        options.a_file(path, ".md", ".tex", ".parquet")
    sections = sections_of(read_runs(runs), [] if by_study else None)
    show(sections)
    for path in to or []:
        write_tables(path, sections)
        say(f"{path}: written")


def show(sections: "Sequence[Section]") -> None:
    """Tables on the terminal, and under each whether our runs say what the paper says."""
    from lntrust.report import terminal

    for section in sections:
        out.print(terminal(section, out.width))
        for verdict in section.verdicts:
            words = escape(f"{verdict.says}\n  {verdict.words}")
            out.print(f"[bold]{verdict.outcome}[/bold]: {words}", highlight=False)
        if section.verdicts:
            out.print()


def write_tables(path: Path, sections: "Sequence[Section]") -> None:
    """One file of all tables, by its suffix."""
    import pyarrow.parquet as pq

    from lntrust.core.files import write_whole
    from lntrust.report import arrow, latex, markdown

    if path.suffix == ".parquet":
        write_whole(path, partial(pq.write_table, arrow(sections)))
    else:
        text = "\n".join(map(markdown if path.suffix == ".md" else latex, sections))
        write_whole(path, lambda temporary: temporary.write_text(text, "utf-8"))


def collect(
    runs: options.RunPaths,
    to: Annotated[Path, Option("--out", "-o", metavar="FILE", help="The collection: a .parquet file.")],
    thin: Annotated[
        bool, Option("--thin", help="Of the nodes' trust keep the last refresh only, not its course.")
    ] = False,
    debug: options.Debug = False,
) -> None:
    """Gather finished runs in one file, to keep or to send.

    `lntrust compare`, `report` and `figures` take it as they take folders. Checkpoints and stored
    predictions are not in it, so that it is a hundredth of their size or less.
    """
    from lntrust.experiment.store import read_runs, write_collection

    options.a_file(to, ".parquet")
    records = read_runs(runs)
    write_collection(records, to, thin)
    methods, studies = {record.method for record in records}, {record.study for record in records}
    counts = [count_text(len(records), "run"), count_text(len(methods), "method")]
    counts += [count_text(len(studies), "study", "studies")]
    say(f"{to}: {', '.join(counts)}, {bytes_text(to.stat().st_size, 1)}")


def report(
    runs: options.RunPaths,
    to: Annotated[
        Path, Option("--out", "-o", metavar="FILE", help="The page: a file that ends in .html.")
    ] = Path("report.html"),
    debug: options.Debug = False,
) -> None:
    """Make one HTML page of runs: tables, charts, graphs, maps, and how to make them again.

    The page is one file and needs nothing else: no network, no other files.
    Where runs belong to a table of the paper, the paper's numbers and claims
    stand beside them.
    """
    from lntrust.experiment.store import read_runs
    from lntrust.report.page import write_page

    options.a_file(to, ".html")
    records = read_runs(runs)
    write_page(records, to, shlex.join(["lntrust", "report", *map(str, runs), "-o", str(to)]))
    say(f"{to}: {count_text(len(records), 'run')}, {to.stat().st_size / 1e6:.1f} MB")


def figures(
    runs: options.RunPaths,
    folder: Annotated[
        Path, Option("--out", "-o", metavar="DIR", callback=options.no_file, help="Where the figures go.")
    ],
    format_: Annotated[
        Literal["png", "pdf", "both"], Option("--format", help="PNG has 200 dots per inch.")
    ] = "both",
    debug: options.Debug = False,
) -> None:
    """Draw finished runs for a paper: curves, bytes, trust, importance, graphs and maps.

    Each of the paper's tables that was run, and each other study, gets the
    figures that its runs allow. The same runs give the same files.
    """
    from lntrust.experiment.store import read_runs
    from lntrust.report import sections_of
    from lntrust.report.figures import all_figures, save

    drawn = False
    for stem, figure in all_figures(sections_of(read_runs(runs))):
        for path in save(figure, folder / stem, format_):
            say(str(path))
        drawn = True
    if not drawn:
        raise LNTrustError(f"{', '.join(map(str, runs))}: nothing there that can be drawn")
