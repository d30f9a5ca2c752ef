"""A link that is cut one way: two nodes, each in a network namespace of its own, with a cable between them.

A wrong permanent entry among one side's neighbours (ARP) sends its frames nowhere, while it still receives.
"""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from fleets import Fleet, enter, probed, without

from lntrust.fleet.http.client import Client

ADDRESS = {"a": "10.77.0.1", "b": "10.77.0.2"}


def ip(*words: str, check: bool = True) -> None:
    subprocess.run(["ip", *words], check=check, capture_output=not check)


class Cable:
    """Namespaces for a and b, joined by a pair of interfaces."""

    def __init__(self) -> None:
        self.names = {name: f"lntrust-{os.getpid()}-{name}" for name in ADDRESS}

    def lay(self) -> None:
        a, b = self.names.values()
        for name in (a, b):
            ip("netns", "add", name)
        ip("link", "add", "cable", "netns", a, "type", "veth", "peer", "name", "cable", "netns", b)
        for name, address in ADDRESS.items():
            self.inside(name, "address", "add", f"{address}/24", "dev", "cable")
            for interface in ("cable", "lo"):
                self.inside(name, "link", "set", interface, "up")

    def inside(self, name: str, *words: str) -> None:
        ip("-n", self.names[name], *words)

    def place(self, name: str) -> Path:
        return Path(f"/run/netns/{self.names[name]}")

    def remove(self) -> None:
        for name in self.names.values():
            ip("netns", "del", name, check=False)

    def visit(self, name: str, what: Callable[[], Any]) -> Any:
        """Do this in a thread that is in the namespace."""

        with ThreadPoolExecutor(1, initializer=enter, initargs=[self.place(name)]) as thread:
            return thread.submit(what).result()


class Apart(Fleet):
    """A fleet whose clients have to go where the node is."""

    cable: Cable

    def visit(self, name: str, what: Callable[[Client], Any]) -> Any:
        return self.cable.visit(name, lambda: super(Apart, self).visit(name, what))


@pytest.fixture
def cable() -> Iterator[Cable]:
    cable = Cable()
    if sys.platform != "linux" or os.geteuid() != 0:
        pytest.skip("only root can make network namespaces")
    if subprocess.run(["ip", "netns", "add", cable.names["a"]], capture_output=True).returncode:
        pytest.skip("no network namespaces can be made here")
    cable.remove()
    try:
        cable.lay()
        yield cable
    finally:
        cable.remove()


def test_a_link_cut_one_way_and_mended(cable: Cable, tmp_path: Path) -> None:
    """Both go on, each by itself; and when it is mended they find each other again."""
    with Apart.of(tmp_path, "ab", hosts=ADDRESS) as fleet:
        fleet.cable = cable
        for name in "ab":
            fleet.start(name, network=cable.place(name))

        def find_each_other() -> None:
            fleet.until("a", probed("b"))
            fleet.until("b", probed("a"))
            fleet.wait(lambda: fleet.weight("a", "b") > 0 and fleet.weight("b", "a") > 0)

        find_each_other()
        wrong = ("lladdr", "02:00:00:00:00:99", "dev", "cable", "nud", "permanent")
        cable.inside("a", "neigh", "replace", ADDRESS["b"], *wrong)  # what a sends to b gets lost
        for name, other in ("ab", "ba"):
            fleet.ask(name)  # sound and in time, whatever they know by now
            fleet.until(name, without(other))
            assert fleet.ask(name).weights == {name: 1.0}
            fleet.trains(name)
        cable.inside("a", "neigh", "del", ADDRESS["b"], "dev", "cable")
        find_each_other()
