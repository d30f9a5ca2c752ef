"""`lntrust report`: runs as one page to look at."""

import shlex
from pathlib import Path
from typing import Annotated

import typer

from lntrust.cli.options import Debug, out
from lntrust.core.errors import LNTrustError


def report(
    runs: Annotated[
        list[Path],
        typer.Argument(metavar="RUNS…", help="Folders with runs, at any depth, and collections of runs."),
    ],
    to: Annotated[
        Path, typer.Option("--out", "-o", metavar="FILE", help="The page: a file that ends in .html.")
    ] = Path("report.html"),
    debug: Debug = False,
) -> None:
    """Make one HTML page of runs: tables, charts, graphs, maps, and how to make them again.

    The page is one file and needs nothing else: no network, no other files.
    Where runs belong to a table of the paper, the paper's numbers and claims
    stand beside them.
    """
    if to.suffix != ".html":
        raise LNTrustError(f"-o {to}: must end in .html")

    from lntrust.experiment.store import read_runs
    from lntrust.report.page.write import write_page

    records = read_runs(runs)
    write_page(records, to, shlex.join(["lntrust", "report", *map(str, runs), "-o", str(to)]))
    count = "1 run" if len(records) == 1 else f"{len(records)} runs"
    size = to.stat().st_size / 1e6
    out.print(f"{to}: {count}, {size:.1f} MB", highlight=False, soft_wrap=True)
