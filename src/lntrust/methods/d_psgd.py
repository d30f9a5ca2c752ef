"""D-PSGD: decentralized parallel stochastic gradient descent (Lian et al., NeurIPS 2017).

Every node takes a gradient step on its own batch and then averages its parameters with its neighbours':

    θ_i ← Σ_{j∈N̄(i)} W_ij (θ_j − lr·v_j),   W_ij = 1/(1 + max(d_i, d_j)),   W_ii = 1 − Σ_{j≠i} W_ij

W is Metropolis–Hastings: symmetric and doubly stochastic, so mixing leaves the mean of all θ where it was.
All nodes of an architecture start from the same parameters, and mix from Stage 2 on, when others speak too.

Exchanged: the parameters after each gradient step, 4P bytes per directed edge, 5·4P a round; with
`local_steps` = k, after every k-th step only.

Where our setting differs: the paper's step has no momentum. Ours has the study's, kept locally and not
mixed. Parameters are shared inside each architecture's subgraph. The paper analyses the averaged model;
deployed is each node's own, and the average (of those that edges connect) is reported as `average`.
"""

from dataclasses import replace
from typing import Annotated

import networkx as nx
import torch
from jaxtyping import Float, Int
from pydantic import Field
from torch import Tensor

from lntrust.methods.base import Deployment, Site, State, answering
from lntrust.methods.sharing import Sharing, Subgraph, subgraphs
from lntrust.study.settings import MethodSettings, Range


class DPSGDSettings(MethodSettings):
    local_steps: Annotated[int, Range(choices=(1, 2, 5, 10))] = Field(1, ge=1)
    """gradient steps between two mixings"""


class DPSGD(Sharing):
    about = "average parameters with the neighbours after every gradient step"
    common_start = True
    settings_class = DPSGDSettings
    settings: DPSGDSettings

    def start(self, site: Site) -> State:
        return {"steps": torch.zeros(len(site.world.worlds), dtype=torch.int64)}

    def round(self, site: Site, state: State, t: int) -> State:
        steps: Int[Tensor, "worlds"] = state["steps"].cpu()
        for batch in site.labelled.round(t - 1):
            site.population.step(batch)
            stepped = torch.ones_like(steps, dtype=torch.bool)
            if batch.active is not None:  # where draws fall unevenly, a world may have had its share
                stepped = batch.active.view(len(steps), -1).any(1).cpu()
            steps = steps + stepped
            due = stepped & (steps % self.settings.local_steps == 0)
            if due.any():
                who = due.to(site.population.device).repeat_interleave(site.world.seeds.n)
                self.mix(site, None if due.all() else who)
        return {"steps": steps}

    def deploy(self, site: Site, state: State) -> Deployment:
        means = {c.stack.learner.name: self._average(site, c) for c in subgraphs(site)}
        alone = Deployment.alone(site.population)
        return replace(alone, variants={"average": replace(alone, answer=answering(site, means))})

    def _average(self, site: Site, subgraph: Subgraph) -> Float[Tensor, "n P"]:
        """The mean over all nodes that edges connect: what mixing for ever would lead to. For reporting."""
        theta = site.population.parameters(subgraph.stack)
        graph: nx.Graph[int] = nx.Graph(site.network.edges[subgraph.edges].tolist())
        for component in nx.connected_components(graph):
            nodes = torch.tensor(sorted(component), device=theta.device)
            theta[nodes] = theta[nodes].mean(0)
        return theta
