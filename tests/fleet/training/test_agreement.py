"""Simulation and fleet agree: the same study, in one process and as processes that live in lockstep.

As published; with few bytes; and with all that makes it safe.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from fleets import Fleet, Member, Status, free_port, wait_until
from sklearn.datasets import load_digits

from lntrust.core.files import read_tensors
from lntrust.experiment.driver import Run
from lntrust.experiment.evaluation import blended, mixing, one_by_one
from lntrust.fleet.http.client import Client
from lntrust.fleet.operations.certificates import Authority
from lntrust.fleet.operations.init import write_node
from lntrust.fleet.settings import load_node
from lntrust.learners.views import load_views
from lntrust.methods.base import below
from lntrust.study.loading import load_study

SEED = 3
LEAN = [
    'methods.lntrust.reply="top3"', "methods.lntrust.recall=3", "methods.lntrust.top_k=2",
    "methods.lntrust.refresh=4", "methods.lntrust.certainty=0.7", 'methods.lntrust.deployment_gate="off"',
    "methods.lntrust.typical_margin=true",
]  # fmt: skip
SAFE = [
    'methods.lntrust.reply="uint8"', 'methods.lntrust.prior="accuracy"', 'methods.lntrust.importance="off"',
    'methods.lntrust.deployment_gate="evidence"', "methods.lntrust.evidence=0.3",
    "methods.lntrust.prior_wins=0.2", "methods.lntrust.self_share=0.1",
]  # fmt: skip
CHANGES = [
    "graph.nodes=5", "graph.kind=barabasi_albert", "partition.labelled=400", "partition.pool=200",
    "partition.shard=80", "training.stage1_rounds=3", "training.stage2_rounds=11", "training.refresh=5",
    "methods.lntrust.budget=40", "methods.lntrust.sample=30", "methods.lntrust.warmup=2",
    # In float32 the last bits depend on how much a matrix is padded, and Adam makes 1e-3 of it.
    "training.precision=float64",
    'population.learners=[{name="linear", kind="linear", view="pixels", options={dropout=0.2}}, '
    '{name="forest", kind="forest", view="pixels", options={trees=15}}]',
]  # fmt: skip
WAYS: dict[str, list[str]] = {"published": [], "lean": LEAN, "safe": SAFE}
STUDIES = {way: load_study("digits", [*CHANGES, *more]) for way, more in WAYS.items()}
STUDY = STUDIES["published"]
NODES = STUDY.graph.nodes
PIXELS = load_digits().images.astype(np.uint8)
Both = tuple[Run, list[Client], Path]
ROUNDS = STUDY.training.stage1_rounds + STUDY.training.stage2_rounds


def bring_to_life(folder: Path, run: Run, i: int, ports: list[int]) -> None:
    """Node i of the simulation as a live one: its data, its model, its neighbours."""
    p, world = run.world.partition, run.world
    for name, ids in (("data", p.train[i]), ("probe", p.validation[i]), ("shard", p.shard[i])):
        np.savez(folder / f"{name}.npz", x=PIXELS[ids], y=world.labels[ids].clip(0))
    learner = STUDY.population.learners[int(world.kinds[i])]
    schedule = ("stage1_rounds", "stage2_rounds", "refresh", "precision", "lr", "batch")
    neighbours = world.edges[world.edges[:, 0] == i, 1].tolist()
    tables = {
        "name": f"n{i}", "seed": SEED,
        "input": {"shape": [8, 8], "dtype": "uint8", "classes": list(world.classes)},
        "model": {"kind": learner.kind, "scale": 0.0625, "options": dict(learner.options)},
        "data": {"labelled": "data.npz", "probe_with": "probe.npz", "shard": "shard.npz"},
        "network": {"listen": f"127.0.0.1:{ports[i]}", "clock": "lockstep", "number": i, "fleet_size": NODES},
        "life": {"save_every": 0.5},
        "limits": {"patience": 60.0, "retries": 0, "deadline": 10.0},
        "http": {"listen": f"127.0.0.1:{ports[NODES + i]}"},
        "training": {name: getattr(STUDY.training, name) for name in schedule},
        "trust": run.method.settings.model_dump(exclude_defaults=True),
        "neighbours": [{"name": f"n{j}", "address": f"127.0.0.1:{ports[j]}"} for j in neighbours],
    }  # fmt: skip
    write_node(folder, tables)


@pytest.fixture(scope="module", params=list(WAYS))
def both(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    study = STUDIES[request.param]
    run = Run(study, "lntrust", SEED, load_views(study, "cpu"), backend="loop")
    # Replies travel in float32; in a simulation of float64 they would arrive unrounded.
    run.network.misbehaviour = dict.fromkeys(range(NODES), lambda p: p.float().to(p.dtype))
    run()
    authority = Authority.open(tmp_path_factory.mktemp("fleet"))
    ports = [free_port() for _ in range(2 * NODES)]
    with Fleet(authority.folder) as fleet:
        for i, name in enumerate(f"n{i}" for i in range(NODES)):
            authority.issue(name, ["127.0.0.1"])
            bring_to_life(folder := authority.folder / name, run, i, ports)
            fleet.members[name] = Member(name, folder, load_node(folder))
        fleet.start(*fleet.members)
        for name in fleet.members:
            fleet.until(name, is_over, 240)
        yield run, [Client(each.settings) for each in fleet.members.values()], authority.folder


def is_over(status: Status) -> bool:
    return bool(status["round"] == ROUNDS and "ensemble" in status["validation"])


def test_trust_is_the_same(both: Both) -> None:
    run, clients, _ = both
    around, state = run.site.around, run.state
    gate = run.method.settings.deployment_gate  # type: ignore[attr-defined]
    assert gate == "members" or bool(state.together.any()), "the study is about something"
    for i, client in enumerate(clients):
        status = client.status()
        for column in torch.nonzero(around.mask[i]).flatten().tolist():
            name = f"n{int(around.member[i, column])}"
            assert status["trust"][name] == pytest.approx(float(state.closed[i, column]), abs=1e-4)
        assert status["strength"] == pytest.approx(float(state.strength[i]), abs=1e-4)
        assert status["together"] == bool(state.together[i])


def test_predictions_are_the_same(both: Both) -> None:
    run, clients, _ = both
    ids = torch.from_numpy(np.unique(run.world.partition.test.values))
    own = run.population.predict_all(ids)
    deployment = run.method.deploy(run.site, run.state)
    mix, heard = mixing(deployment, run.population), run.network.heard(own)
    if deployment.certainty is None or mix is None:
        together = blended(own, heard, mix)
    else:
        together, asked = one_by_one(own, heard, mix, deployment.certainty)
        assert 0 < asked.sum() < asked.numel() * (run.world.degrees.mean())
    together = together / together.sum(-1, keepdim=True)
    for i, client in enumerate(clients):
        for which, expected in (("self", own[i]), ("ensemble", together[i])):
            answer = client.predict(PIXELS[ids.numpy()], which)  # type: ignore[arg-type]
            assert answer["silent"] == []
            np.testing.assert_allclose(answer["probabilities"], expected.numpy(), atol=1e-4)


def test_bytes_are_equal_on_every_edge(both: Both) -> None:
    """Per directed edge, phase and kind, and nothing had to be asked again. What is asked is also served."""
    run, clients, folder = both
    edges = run.world.edges.tolist()
    simulated = {(phase, kind): book for phase, kind, book in run.network.ledger}
    assert {phase for phase, _ in simulated} == {"probe", "distil"}
    ledgers = [ledger_of(folder / f"n{i}", client) for i, client in enumerate(clients)]
    around = [[j for a, j in edges if a == i] for i in range(NODES)]
    for i, client in enumerate(clients):
        status, live, d = client.status(), ledgers[i], len(around[i])
        assert (status["retries"], status["failures"]) == ({}, {})
        for k, j in enumerate(around[i]):
            mine = {"query": k, "reply": d + k}
            back = around[j].index(i)
            theirs = {"query": len(around[j]) + back, "reply": back}
            way = {"query": [i, j], "reply": [j, i]}
            for kind in ("query", "reply"):
                for phase in ("probe", "distil"):  # a message is a message: framing and number agree, too
                    book = simulated[phase, kind][edges.index(way[kind])]
                    assert live[phase, kind][mine[kind]].tolist() == book.tolist()
                phases = [p for p, of in live if of == kind and p not in ("served", "hello")]
                asked = [live[p, kind][mine[kind]] for p in phases]
                assert sum(asked).tolist() == ledgers[j]["served", kind][theirs[kind]].tolist()


def ledger_of(folder: Path, client: Client) -> dict[tuple[str, str], Any]:
    """The node's ledger as it saved it, once nobody asks any more: the last save is awaited."""
    total = sum(sum(way.values()) for way in client.status()["bytes"].values())

    def saved() -> dict[str, Any]:
        return below("ledger/", read_tensors(folder / "state" / "node.safetensors")[0])

    wait_until(lambda: sum(int(book[:, :2].sum()) for book in saved().values()) == total, every=0.2)
    return {tuple(name.split("/")): book for name, book in saved().items()}  # type: ignore[misc]
