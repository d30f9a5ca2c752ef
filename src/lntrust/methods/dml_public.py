"""DML on unlabelled examples: mutual learning that keeps labelled inputs at home. A variant of ours.

Every supervised step of Stage 2 learns the labels of its batch, and from the neighbours on U further examples
of the node's unlabelled shard:

    CE(p_i, y) + λ·mean_{j∈N(i)} KL(p_j ‖ p_i) over the U examples

Exchanged: 5·U·(input or id + 4C) bytes a round for each neighbour asked; shard examples may go by id.
"""

from pydantic import Field

from lntrust.methods.base import Site, State
from lntrust.methods.dml import DML, DMLSettings, mutual


class DMLPublicSettings(DMLSettings):
    unlabelled: int = Field(64, ge=1, description="U, unlabelled examples per step")


class DMLPublic(DML):
    about = "mutual learning on unlabelled examples, so that labelled ones stay at home"
    settings_class = DMLPublicSettings
    settings: DMLPublicSettings

    def remarks(self, site: Site) -> list[str]:
        empty = int(site.world.partition.shard.lengths.min()) == 0
        nothing = ["no unlabelled examples: nodes train alone"] if empty else []
        return nothing + super().remarks(site)

    def round(self, site: Site, state: State, t: int) -> State:
        if int(site.world.partition.shard.lengths.min()) == 0:
            site.learn(t)  # there is nothing to ask about
            return state
        for k, batch in enumerate(site.labelled.round(t - 1)):
            more = site.unlabelled("mutual", self.settings.unlabelled, t, k)
            p_bar, weight = self.opinion(site, more, "shard", batch)
            site.population.step(batch, mutual, (p_bar, weight), more=more)
        return state
