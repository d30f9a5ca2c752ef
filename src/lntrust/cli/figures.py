"""`lntrust figures`."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from lntrust.cli.options import Debug, out
from lntrust.core.errors import LNTrustError


def figures(
    runs: Annotated[
        list[Path],
        typer.Argument(metavar="RUNS…", help="Folders with runs, or collections of them (.parquet)."),
    ],
    folder: Annotated[Path, typer.Option("--out", "-o", metavar="DIR", help="Where the figures go.")],
    format_: Annotated[
        Literal["png", "pdf", "both"], typer.Option("--format", help="PNG has 200 dots per inch.")
    ] = "both",
    debug: Debug = False,
) -> None:
    """Draw finished runs for a paper: curves, bytes, trust, importance, graphs and maps.

    Each of the paper's tables that was run, and each other study, gets the
    figures that its runs allow. The same runs give the same files.
    """
    from lntrust.experiment.store import read_runs
    from lntrust.report.figures.draw import all_figures, save
    from lntrust.report.sections import sections_of

    if folder.exists() and not folder.is_dir():
        raise LNTrustError(f"--out {folder}: is a file; must be a folder, or a name for a new one")
    nothing = True
    for stem, figure in all_figures(sections_of(read_runs(runs))):
        for path in save(figure, folder / stem, format_):
            out.print(str(path), highlight=False, markup=False, soft_wrap=True)
        nothing = False
    if nothing:
        raise LNTrustError(f"{', '.join(map(str, runs))}: nothing there that can be drawn")
