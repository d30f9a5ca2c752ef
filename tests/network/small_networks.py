"""Five nodes with linear heads on digits, and what messages between them weigh."""

import numpy as np
import torch

from lntrust.experiment.driver import Run
from lntrust.learners.views import Views
from lntrust.network import Message, Network, encode
from lntrust.network.codec import Kind
from lntrust.study import load_study
from lntrust.world import load_dataset

VIEWS = Views(load_dataset("digits"), torch.device("cpu"), torch.float32)
STUDY = [
    "graph.nodes=5", "partition.labelled=250", "partition.pool=100", "partition.shard=40",
    "population.learners=[{name='linear', kind='linear', view='pixels'}]", "training.stage1_rounds=1",
    "training.stage2_rounds=0",
]  # fmt: skip
INPUT, C = 64, 10  # bytes of one input, uint8[8, 8]; classes


def make(*overrides: str, method: str = "independent", trained: bool = False) -> Run:
    run = Run(load_study("digits", [*STUDY, *overrides]), method, 0, VIEWS)
    if trained:
        run()
    return run


def wire(kind: Kind, **tensors: np.ndarray) -> int:
    """Bytes of a message with these tensors."""
    return len(encode(Message(kind, tensors, round=7, version=3)))


def question(examples: int) -> int:
    return wire("query", inputs=np.zeros((examples, 8, 8), np.uint8))


def answer(examples: int) -> int:
    return wire("reply", probabilities=np.zeros((examples, C), np.float32))


def total(network: Network) -> int:
    return int(network.ledger.summary()["total"])
