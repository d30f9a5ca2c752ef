"""Decentralized FedAvg (Lalitha et al. 2018; Sun et al. 2022): local steps, then an average over neighbours.

    θ_i ← Σ_{j∈N̄(i)} W_ij θ_j   after each round's local steps,

with W the Metropolis–Hastings weights of `d_psgd`. This is D-PSGD that mixes once a round; on a full graph it
is FedAvg (McMahan et al. 2017) over all nodes, without a server.

Exchanged: the parameters once a round, 4P bytes per directed edge.

Where our setting differs: all nodes weigh alike (FedAvg weighs by sample counts, which no symmetric matrix
can); momentum is local and goes on from round to round; parameters are shared inside each architecture's
subgraph, whose nodes start from the same parameters.
"""

from typing import Annotated

from pydantic import Field

from lntrust.methods.base import Site, State
from lntrust.methods.sharing import Sharing
from lntrust.study.settings import MethodSettings, Range


class DFedAvgSettings(MethodSettings):
    every: Annotated[int, Range(choices=(1, 2, 5, 10))] = Field(1, ge=1)
    """rounds between two averages"""


class DFedAvg(Sharing):
    about = "average parameters with the neighbours after every round"
    common_start = True
    settings_class = DFedAvgSettings
    settings: DFedAvgSettings

    def round(self, site: Site, state: State, t: int) -> State:
        state = super().round(site, state, t)
        if t % self.settings.every == 0:
            self.mix(site)
        return state
