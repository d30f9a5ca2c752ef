"""Gossip learning (Hegedűs, Danner & Jelasity 2021), which the paper calls Gossip-FedAvg.

Every round each node pushes its model and its age (the steps it has seen) to one random neighbour. Who
receives (θ_r, t_r) merges, older models weighing more, and then trains:

    θ ← (1 − a)·θ + a·θ_r,   a = t_r / (t + t_r),   t ← max(t, t_r)

Several arrivals merge in the order of their senders.

Exchanged: parameters and age over one edge per node and round, 4P + 8 bytes.

Where our setting differs: rounds are synchronous, so all pushes of a round carry the models of the round
before; ages begin with the steps of Stage 1; nodes of an architecture start from the same parameters, as the
paper's do; neighbours are those of the same architecture. The average over all neighbours at once, which
other work calls by the same name, is `dfedavg`.
"""

from typing import Annotated

import torch
from jaxtyping import Int
from pydantic import Field
from torch import Tensor

from lntrust.core.randomness import fold, uniform
from lntrust.methods.base import Site, State
from lntrust.methods.sharing import Sharing, Subgraph, subgraphs
from lntrust.study.settings import MethodSettings, Range


class GossipSettings(MethodSettings):
    every: Annotated[int, Range(choices=(1, 2, 5, 10))] = Field(1, ge=1)
    """rounds between two pushes"""


class GossipFedAvg(Sharing):
    about = "push the model to one random neighbour a round; merge by age"
    common_start = True
    settings_class = GossipSettings
    settings: GossipSettings

    def start(self, site: Site) -> State:
        return {"age": site.population.steps_taken("supervised")}

    def round(self, site: Site, state: State, t: int) -> State:
        age = state["age"]
        if t % self.settings.every == 0:
            for subgraph in subgraphs(site):
                age = self.push(site, subgraph, age, t)
        before = site.population.steps_taken("supervised")
        super().round(site, state, t)
        return {"age": age + site.population.steps_taken("supervised") - before}

    def push(self, site: Site, subgraph: Subgraph, age: Int[Tensor, "n"], t: int) -> Int[Tensor, "n"]:
        """Everybody pushes, then everybody merges what has arrived."""
        edges, receivers, degree = subgraph.on_cpu
        chosen = self.choose_edges(site, subgraph, t)
        receiver = receivers[chosen]
        # Senders are in order, so the k-th arrival of every receiver can be merged at once: all first
        # arrivals, then all second ones, and so on.
        order = receiver.argsort(stable=True)
        count = torch.bincount(receiver, minlength=len(degree))
        rank = torch.arange(len(order)) - (count.cumsum(0) - count)[receiver[order]]
        by_turn, turns = order[rank.argsort(stable=True)], torch.bincount(rank).tolist()
        pushed, receiver = edges[chosen][by_turn], receiver[by_turn]
        if site.population.device.type == "cuda":
            pushed, receiver = pushed.pin_memory(), receiver.pin_memory()
        theta = site.population.parameters(subgraph.stack)
        message = {"parameters": theta, "age": age[:, None]}
        arrived = site.sharing.send(pushed, message, "parameters", "push")
        parts = (receiver.to(theta.device, non_blocking=True), arrived["age"][:, 0], arrived["parameters"])
        for node, t_r, theta_r in zip(*(torch.split(part, turns) for part in parts), strict=True):
            a = (t_r.to(theta.dtype) / (age[node] + t_r).clamp(min=1))[:, None]
            theta[node] = (1 - a) * theta[node] + a * theta_r
            age = age.index_put((node,), torch.maximum(age[node], t_r))
        site.population.set_parameters(subgraph.stack, theta)
        return age

    def choose_edges(self, site: Site, subgraph: Subgraph, t: int) -> Int[Tensor, "senders"]:
        """One of its edges for every node that has any, evenly drawn.

        Decided on the CPU, so that a GPU that still trains need not be waited for.
        """
        degree = subgraph.on_cpu[2]
        draw = uniform(fold(site.world.seeds.keys("gossip"), t), 1)[:, 0]
        first = degree.cumsum(0) - degree  # edges are sorted by sender
        return (first + (draw * degree).long())[degree > 0]
