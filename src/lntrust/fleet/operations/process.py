"""A node as a process of its own: logs, signals, doors."""

import gc
import signal
import sys
import threading
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Literal

import torch
from threadpoolctl import threadpool_limits

from lntrust.fleet.http.app import HttpDoor
from lntrust.fleet.logs import event, show_logs
from lntrust.fleet.node import Node
from lntrust.fleet.settings import load_node

_HUNG_UP = "certificates are read again when they change; settings, data and model when the node starts"


def run_node(file: Path, log: Literal["json", "text"] | None = None) -> None:
    """Until SIGINT or SIGTERM; SIGHUP ends nothing. Whatever else ends it, the last state is on disk."""
    settings = load_node(file)
    show_logs(log or settings.life.log)
    torch.set_num_threads(settings.life.threads)
    threadpool_limits(settings.life.threads, "blas")  # numpy's, which else wait for each other
    sys.setswitchinterval(0.001)  # who answers shall not wait for who learns
    ending, hung_up = threading.Event(), threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ending.set())
    signal.signal(signal.SIGHUP, lambda *_: hung_up.set())
    with Node(settings) as node, ExitStack() as doors:
        if settings.http.listen != "off":
            door = doors.enter_context(closing(HttpDoor(node)))
            event("clients can come", address=door.address)
        node.start()
        gc.collect()
        gc.freeze()  # what torch has loaded stays: no need to look through it while somebody waits
        while not ending.wait(0.5):  # a signal that another thread takes does not wake a wait without end
            if hung_up.is_set():
                hung_up.clear()
                event("SIGHUP", note=_HUNG_UP)
