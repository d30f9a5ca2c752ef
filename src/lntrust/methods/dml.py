"""DML: deep mutual learning (Zhang, Xiang, Hospedales & Lu, CVPR 2018), over a graph.

On every supervised batch, from the start of Stage 2, node i asks its neighbours and learns from labels and
neighbours at once:

    CE(p_i, y) + λ·mean_{j∈N(i)} KL(p_j ‖ p_i),   temperature 1

The mean of the divergences has the gradient of the divergence from the mean p̄_i, which is what is computed.

Exchanged: the inputs of each of 5 batches and the predictions on them, 5·64·(input + 4C) bytes a round for
each neighbour asked. The inputs are the node's labelled examples: they leave the node, a cost in privacy that
no byte count shows. `dml_public` keeps them at home.

Where our setting differs: DML was made for models on one machine; here everybody answers with the model as
it stands before the step, and λ is a setting (1 as published).
"""

from typing import Annotated

import torch
from jaxtyping import Bool, Float, Int
from pydantic import Field
from torch import Tensor

from lntrust.core.losses import cross_entropy
from lntrust.core.segments import sum_by
from lntrust.learners import Batch
from lntrust.methods.base import Method, Site, State
from lntrust.network import Questions
from lntrust.network.questions import Source
from lntrust.study.settings import MethodSettings, Range


class DMLSettings(MethodSettings):
    strength: Annotated[float, Range(0.1, 10.0, log=True)] = Field(1.0, ge=0)
    """λ, the weight of the neighbours"""


class DML(Method):
    about = "learn every labelled batch from its labels and from the neighbours' predictions on it"
    by_gradients = True
    settings_class = DMLSettings
    settings: DMLSettings

    def round(self, site: Site, state: State, t: int) -> State:
        for batch in site.labelled.round(t - 1):
            p_bar, weight = self.opinion(site, batch.examples, "batch", batch)
            site.population.step(batch, mutual, (p_bar, weight))
        return state

    def opinion(
        self, site: Site, examples: Int[Tensor, "n U"], source: Source, batch: Batch
    ) -> tuple[Float[Tensor, "n U C"], Float[Tensor, "n"]]:
        """p̄_i on these examples, and λ, or 0 for who got no answer. Only nodes that will step ask."""
        asks = site.population.takes_steps
        asks = asks if batch.active is None else asks & batch.active
        over = torch.nonzero(asks[site.network.edges[:, 0]]).flatten()
        replies = site.network.ask(Questions.of(examples, source), "mutual", over)
        p_bar, answered = neighbours_mean(replies.route.asker, replies.regular(), replies.sound, len(asks))
        return p_bar, answered.to(p_bar.dtype) * self.settings.strength


def neighbours_mean(
    asker: Int[Tensor, "q"], said: Float[Tensor, "q U C"], sound: Bool[Tensor, "q"], n: int
) -> tuple[Float[Tensor, "n U C"], Bool[Tensor, "n"]]:
    """The mean of what each asker's neighbours said about its U examples, and who got any answer."""
    count = torch.bincount(asker[sound], minlength=n)
    total = sum_by(asker[sound], said[sound].flatten(1), n).view(n, *said.shape[1:])
    return total / count.clamp(min=1)[:, None, None], count > 0


def mutual(
    logits: Float[Tensor, "n B C"],
    labels: Int[Tensor, "n B"],
    p_bar: Float[Tensor, "n U C"],
    weight: Float[Tensor, "n"],
) -> Float[Tensor, "n"]:
    """CE on the labelled B, plus weight · KL(p̄ ‖ p) on the last U of the logits, which may be the same."""
    log_p = logits[:, -p_bar.shape[1] :].log_softmax(-1)
    divergence = (torch.xlogy(p_bar, p_bar) - p_bar * log_p).sum(-1).mean(-1)
    return cross_entropy(logits[:, : labels.shape[1]], labels) + weight * divergence
