"""A node as a process of its own: logs, signals, doors."""

import gc
import logging
import signal
import sys
import threading
from pathlib import Path
from typing import Literal

import torch

from lntrust.fleet.http import HttpDoor
from lntrust.fleet.logs import event, show_logs
from lntrust.fleet.node import Node
from lntrust.fleet.settings import load_node


def run_node(file: Path, log: Literal["json", "text"] | None = None) -> None:
    """Until SIGINT or SIGTERM. Whatever else ends it, the last state is on disk."""
    settings = load_node(file)
    show_logs(log or settings.life.log)
    torch.set_num_threads(settings.life.threads)
    sys.setswitchinterval(0.001)  # who answers shall not wait for who learns
    told, warned = threading.Event(), False
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: told.set())
    node = Node(settings)
    try:
        door = None if settings.http.listen == "off" else HttpDoor(node)
        try:
            if door is not None:
                event("clients can come", address=door.address)
            node.start()
            gc.collect()
            gc.freeze()  # what torch has loaded stays: no need to look through it while somebody waits
            while not told.wait(0.5):  # a signal that another thread takes does not wake a wait without end
                if node.expired and not warned:
                    warned = True
                    event("certificate has run out", level=logging.ERROR, note="renew it, and start again")
        finally:
            if door is not None:
                door.close()
    finally:
        node.close()
