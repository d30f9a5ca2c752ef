"""Methods that meet trouble: workers find this file beside the study they are given."""

import os
import signal
import time
from pathlib import Path

from lntrust import LNTrustError
from lntrust.methods import Method, Site, State


class Slow(Method):
    """A moment a round, so that there is time to interfere."""

    def round(self, site: Site, state: State, t: int) -> State:
        time.sleep(float(os.environ.get("MOMENT", "0.08")))
        return super().round(site, state, t)


class Looks(Slow):
    """Notes down what kind of memory its inputs lie in, for each process a file."""

    def start(self, site: Site) -> State:
        where = site.population.stacks[0].view.data_ptr()
        for line in Path("/proc/self/maps").read_text().splitlines():
            first, _, end = line.split()[0].partition("-")
            if int(first, 16) <= where < int(end, 16):
                Path(f"memory-{os.getpid()}").write_text(line)
        return super().start(site)


class DiesOnce(Method):
    """The first that comes to the third round takes its whole process down."""

    def round(self, site: Site, state: State, t: int) -> State:
        if t == 3 and not Path("died").exists():
            Path("died").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().round(site, state, t)


class Deadly(Method):
    """No process survives it with the first seed."""

    def start(self, site: Site) -> State:
        if site.world.seed == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return {}


class Fails(Method):
    """Cannot be used with the first seed."""

    def start(self, site: Site) -> State:
        print("what a method prints is no answer")
        if site.world.seed == 0:
            raise LNTrustError("not with this seed")
        return {}
