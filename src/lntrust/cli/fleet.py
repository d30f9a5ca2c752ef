"""`lntrust fleet`: what concerns live nodes together."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table
from typer import Argument, Option

from lntrust.cli import options
from lntrust.cli.console import out
from lntrust.core.errors import LNTrustError

fleet = typer.Typer(
    help="Live nodes on a real network: their certificates, and a demonstration.", no_args_is_help=True
)
SOON = 14.0  # days


@fleet.command()
def certs(
    folder: Annotated[Path, Argument(metavar="DIR", help="The authority's folder; made if it is new.")],
    node: Annotated[
        list[str] | None,
        Option(metavar="NAME=HOST,…", help="Certify a node that others reach at these names or addresses."),
    ] = None,
    renew: Annotated[
        list[str] | None, Option(metavar="NAME", help="A new key and certificate; all: for every node.")
    ] = None,
    remove: Annotated[
        list[str] | None, Option(metavar="NAME", help="Forget a node's key, and renew no more.")
    ] = None,
    days: Annotated[int, Option(min=1, help="How long new certificates hold.")] = 90,
    debug: options.Debug = False,
) -> None:
    """A certificate authority for a fleet: one certificate per node, then a list of all.

    Each node gets a folder in DIR: node.pem, node.key and ca.pem, to be
    copied to the device. Keep ca.key where it is, and secret: whoever has
    it can join the fleet under any name. A certificate cannot be called
    back, so take a removed node off its neighbours' lists, too.
    """
    from lntrust.fleet.operations.certificates import Authority

    asked = [text.partition("=") for text in node or []]
    for name, sign, hosts in asked:
        if not name or not all(hosts.split(",")):
            raise LNTrustError(f"--node {name}{sign}{hosts}: must look like NAME=HOST or NAME=HOST,HOST")
    if not asked and not (folder / "fleet.json").is_file():
        raise LNTrustError(f"{folder}: is no authority's folder; --node NAME=HOST founds one")
    authority = Authority.open(folder)
    for name in remove or []:
        authority.remove(name)
    for name, _, hosts in asked:
        authority.issue(name, hosts.split(","), days)
    living = [each.name for each in authority.nodes() if not each.removed]
    for name in living if renew == ["all"] else renew or []:
        authority.renew(name, days)
    now = datetime.now(UTC)
    table = Table("node", "hosts", "expires", "")
    for each in authority.nodes():
        left = (each.expires - now) / timedelta(days=1)
        state = "expired" if left < 0 else f"{left:.0f} days left" + (", renew it" if left < SOON else "")
        state, hosts = "removed" if each.removed else state, escape(", ".join(each.hosts))
        table.add_row(escape(each.name), hosts, f"{each.expires:%Y-%m-%d %H:%M} UTC", state)
    out.print(table if authority.nodes() else f"{folder}: no node has a certificate yet; --node NAME=HOST")
