"""`lntrust data`: what data is here, and how to get more."""

from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.markup import escape
from rich.table import Column, Table
from typer import Argument, Option

from lntrust.cli import options
from lntrust.cli.console import bars, out, say

data = typer.Typer(help="What data is here, and how to get more.", invoke_without_command=True)
Name = Annotated[str, Argument(help="cifar10, cifar100, eurosat or uci_har.")]


@data.callback()
def show(context: typer.Context, data: options.DataDir = None, debug: options.Debug = False) -> None:
    """What data is here, where it was looked for, and how to get more."""
    if context.invoked_subcommand:
        return
    from lntrust.world.data.datasets import FILES, data_directory, missing_files

    folder = data_directory(data)
    columns = ("dataset", "here", Column("where", overflow="fold"))
    table = Table(*columns, title=escape(f"looked for in {folder}"))
    for name in FILES:
        missing = missing_files(name, folder)
        where = "embedded in scikit-learn" if name == "digits" else str(folder / name)
        table.add_row(name, "no" if missing else "yes", f"{missing[0]} is not there" if missing else where)
    out.print(table)
    say("To get one: lntrust data download NAME --to DIR, then lntrust data extract NAME --images DIR …")


@data.command()
def download(
    name: Name,
    to: Annotated[Path, Option(help="A new folder for the raw files.")],
    url: Annotated[str | None, Option(help="Another address than the publisher's.")] = None,
    debug: options.Debug = False,
) -> None:
    """Fetch a dataset's raw files from its publisher, check them and unpack them."""
    from lntrust.world.data.download import download

    with bars() as begin:
        download(name, to, url, begin(f"downloading {name}"))
    say(f"{to}: {name} is there; next: lntrust data extract {name} --images {to} --help")


@data.command()
def extract(
    name: Name,
    images: Annotated[Path, Option(help="The folder with the raw files.")],
    backbone: Annotated[
        Literal["mobilenet_v2", "efficientnet_b0"], Option(help="Whose features to compute.")
    ] = "mobilenet_v2",
    onnx: Annotated[
        Path | None, Option(help="Take the backbone from this ONNX file, not from torchvision.")
    ] = None,
    coordinates: Annotated[Path | None, Option(help="eurosat: a CSV with file, latitude, longitude.")] = None,
    batch: Annotated[int, Option(min=1, help="Images at a time.")] = 64,
    device: options.Device = "auto",
    data: options.DataDir = None,
    debug: options.Debug = False,
) -> None:
    """Compute the features that the studies use from raw images (uci_har: put the windows in order)."""
    from lntrust.learners.views import pick_device
    from lntrust.world.data.datasets import data_directory
    from lntrust.world.data.extract import extract, extract_windows

    folder = data_directory(data)
    if name == "uci_har":
        extract_windows(images, folder)
    else:
        with bars() as begin:
            extract(
                name, images, folder, backbone, onnx=onnx, coordinates=coordinates, batch=batch,
                device=str(pick_device(device)), progress=begin(f"{name}, {backbone}"),
            )  # fmt: skip
    say(f"{folder / name}: written")
