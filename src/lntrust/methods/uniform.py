"""Uniform trust: train alone, then answer with the plain mean of the closed neighbourhood.

    p_i^deploy(x) = Σ_{j ∈ N̄(i)} p_j(x) / |N̄(i)|

Exchanged in training: nothing. At deployment: one query to and one reply from each neighbour. What
learned trust has to beat.
"""

import torch

from lntrust.methods.base import Deployment, Method, Site, State


class Uniform(Method):
    about = "train alone; answer with the plain mean of oneself and all neighbours"

    def deploy(self, site: Site, state: State) -> Deployment:
        alone = Deployment.alone(site.population)
        members = torch.cat([alone.members, site.network.edges])
        size = torch.bincount(members[:, 0], minlength=site.population.n)
        return Deployment(members, 1.0 / size[members[:, 0]].to(site.population.dtype))
