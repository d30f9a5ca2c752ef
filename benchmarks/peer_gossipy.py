"""Gossip averaging of linear heads in gossipy: the other side of `python -m benchmarks.speed peer`.

    PYTHON-WITH-GOSSIPY benchmarks/peer_gossipy.py data.npz --rounds 20 --threads 1 --threads 2

Runs in gossipy's own environment and imports nothing of lntrust. `data.npz` holds x [n, m, D], y [n, m],
edges [E, 2] and the settings classes, batch, lr. Prints one JSON object as the last line: for every number
of threads, the merges, updates, SGD steps and sample gradients that took place (counted, not assumed), and
the seconds they took.
"""

import argparse
import importlib.metadata
import importlib.util
import json
import platform
import sys
import time
import types

import numpy as np
import torch

if importlib.util.find_spec("torchvision") is None:
    # gossipy imports it at the top, only to download images: an empty stand-in will do here.
    sys.modules["torchvision"] = types.ModuleType("torchvision")

from gossipy import CACHE, set_seed
from gossipy.core import AntiEntropyProtocol, ConstantDelay, CreateModelMode, StaticP2PNetwork
from gossipy.model.handler import TorchModelHandler
from gossipy.model.nn import LogisticRegression
from gossipy.node import GossipNode
from gossipy.simul import GossipSimulator


class Counted(TorchModelHandler):
    """gossipy's handler of torch models, with a count of what it does."""

    merges = updates = steps = samples = 0

    def _merge(self, other_model_handler):
        Counted.merges += 1
        super()._merge(other_model_handler)

    def _update(self, data):
        Counted.updates += 1
        super()._update(data)

    def _local_step(self, x, y):
        Counted.steps += 1
        Counted.samples += len(x)
        super()._local_step(x, y)


class NoTest:
    """What the simulator asks of a data dispatcher where nothing is evaluated."""

    def has_test(self):
        return False


def simulator(data, seed):
    """One node per row of x; everybody pushes to one random neighbour a round, and nothing is lost."""
    set_seed(seed)
    x, y = torch.from_numpy(data["x"]), torch.from_numpy(data["y"])
    n = len(x)
    topology = np.zeros((n, n))
    topology[data["edges"][:, 0], data["edges"][:, 1]] = 1
    network = StaticP2PNetwork(n, topology)
    handler = Counted(
        net=LogisticRegression(x.shape[-1], int(data["classes"])),
        optimizer=torch.optim.SGD,
        optimizer_params={"lr": float(data["lr"])},
        criterion=torch.nn.CrossEntropyLoss(),
        local_epochs=1,
        batch_size=int(data["batch"]),
        create_model_mode=CreateModelMode.MERGE_UPDATE,
    )
    # A round of one time step: all push, then all receive. The least bookkeeping that gossipy can have.
    nodes = {i: GossipNode(i, ((x[i], y[i]), None), 1, handler.copy(), network, sync=True) for i in range(n)}
    return GossipSimulator(
        nodes=nodes,
        data_dispatcher=NoTest(),
        delta=1,
        protocol=AntiEntropyProtocol.PUSH,
        delay=ConstantDelay(0),
    )


def measure(data, rounds, warmup, threads):
    torch.set_num_threads(threads)
    CACHE.clear()
    sim = simulator(data, seed=0)
    sim.init_nodes()
    sim.start(n_rounds=warmup)
    Counted.merges = Counted.updates = Counted.steps = Counted.samples = 0
    clock = time.perf_counter()
    sim.start(n_rounds=rounds)
    seconds = time.perf_counter() - clock
    return {
        "threads": threads, "seconds": seconds, "rounds": rounds, "merges": Counted.merges,
        "updates": Counted.updates, "steps": Counted.steps, "samples": Counted.samples,
    }  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--warmup", type=int, default=2)
    parser.add_argument("--threads", type=int, action="append", required=True)
    arguments = parser.parse_args()
    with np.load(arguments.data, allow_pickle=False) as archive:
        data = {name: archive[name] for name in archive.files}
    measured = [measure(data, arguments.rounds, arguments.warmup, threads) for threads in arguments.threads]
    versions = {
        "gossipy-dfl": importlib.metadata.version("gossipy-dfl"), "python": platform.python_version(),
        "torch": torch.__version__, "numpy": np.__version__,
    }  # fmt: skip
    print(json.dumps({"versions": versions, "measured": measured}))


if __name__ == "__main__":
    main()
