"""A Ray cluster of two nodes that loses one in the midst of a sweep; `test_ray.py` runs it.

Everything listens on loopback, in namespaces of its own: what is left running ends with this process.
The arguments are those of `lntrust sweep`; the last one is the folder of runs. What came of it is in the file
`told.json` in the working folder: the sweep, Ray and this process all write to standard output.
"""

import json
import subprocess
import sys
import time
from pathlib import Path

from ray.cluster_utils import Cluster

# A lost node is noticed within a second or two, and not after half a minute.
IMPATIENT = {
    "health_check_initial_delay_ms": 0, "health_check_period_ms": 500, "health_check_timeout_ms": 1000,
    "health_check_failure_threshold": 2,
}  # fmt: skip
STORE = 100_000_000


def parent_of(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except FileNotFoundError:
        return 0


def at_work(runs: Path, raylet: int) -> Path | None:
    """A run that a worker of this node has a checkpoint of, and has not ended."""
    for file in runs.rglob("attempt-1.json"):
        folder, pid = file.parent, json.loads(file.read_text())["pid"]
        begun = (folder / "checkpoint.safetensors").exists() and not (folder / "summary.json").exists()
        if begun and parent_of(pid) == raylet:
            return folder
    return None


def main() -> None:
    runs = Path(sys.argv[-1])
    head = {"num_cpus": 1, "include_dashboard": False, "object_store_memory": STORE}
    cluster = Cluster(initialize_head=True, head_node_args={**head, "_system_config": IMPATIENT})
    node = cluster.add_node(num_cpus=1, object_store_memory=STORE)
    raylet = node.all_processes["raylet"][0].process.pid
    command = [sys.executable, "-m", "lntrust.cli", "sweep", "--on", "ray", "--address", cluster.address]
    sweep = subprocess.Popen([*command, *sys.argv[1:]])
    while (lost := at_work(runs, raylet)) is None:
        assert sweep.poll() is None, "the sweep was over before the node was lost"
        time.sleep(0.02)
    cluster.remove_node(node, allow_graceful=False)
    Path("told.json").write_text(json.dumps({"lost": lost.name, "code": sweep.wait()}))


if __name__ == "__main__":
    main()
