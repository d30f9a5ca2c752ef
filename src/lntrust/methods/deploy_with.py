"""Any method's training under another's deployment: the study's field `deploy`.

So that what a method gains while it trains, and what answering together gains, can be told apart. `trust` and
`fedpae` look at validation labels, once, after training; under them no method trains on these labels. Before
the last round their nodes answer alone. What the method itself exchanges for its own deployment is still
exchanged, and charged; its variants are not shown.
"""

from dataclasses import replace
from typing import Any

from lntrust.core.errors import LNTrustError
from lntrust.learners.population import PseudoLabels
from lntrust.methods.base import ALL, Deployment, Method, Site, State, below
from lntrust.network import WireFormat
from lntrust.study.settings import identity_fields

_PREFIX = "deploy/"


class DeployWith(Method):
    """Trains as `inner` does; `answerer` decides who answers, or everybody alone where there is none."""

    def __init__(self, inner: Method, answerer: Method | None) -> None:
        super().__init__(inner.settings)
        self.inner, self.answerer = inner, answerer
        self.can_certify, self.common_start = inner.can_certify, inner.common_start
        self.uses_validation = inner.uses_validation or (answerer is not None and answerer.uses_validation)

    @property
    def wire_format(self) -> WireFormat:
        return self.inner.wire_format

    @property
    def final_rounds(self) -> int:
        return self.inner.final_rounds

    def more_identity(self) -> dict[str, Any]:
        if self.answerer is None:
            return {}
        return {"answerer": identity_fields(self.answerer.settings)}

    def remarks(self, site: Site) -> list[str]:
        return self.inner.remarks(site)

    def check(self, site: Site) -> None:
        self.inner.check(site)
        if self.inner.final_rounds and self.answerer is not None and self.answerer.uses_validation:
            raise LNTrustError(
                f"final_rounds = {self.inner.final_rounds}: these rounds train on validation labels, so that "
                "nobody can choose by them afterwards who shall answer; set final_rounds = 0, or no deploy"
            )
        if self.answerer is not None:
            if self.answerer.wire_format not in (WireFormat(), self.inner.wire_format):
                raise LNTrustError(
                    f"deploy = {site.world.study.deploy!r}: who answers would speak otherwise than who "
                    f"trains "
                    f"({self.answerer.wire_format}); leave its settings query and reply out"
                )
            self.answerer.check(site)

    def start(self, site: Site) -> State:
        self.inner.certify = self.certify
        return self.inner.start(site)

    def round(self, site: Site, state: State, t: int) -> State:
        self.inner.certify = self.certify
        return self.inner.round(site, state, t)

    def pseudo_labels(self, site: Site, state: State) -> PseudoLabels | None:
        return self.inner.pseudo_labels(site, state)

    def finish(self, site: Site, state: State) -> State:
        state = self.inner.finish(site, state)
        if self.answerer is None:
            return state
        return state | {_PREFIX + name: t for name, t in self.answerer.finish(site, {}).items()}

    def deploy(self, site: Site, state: State) -> Deployment:
        own = self.inner.deploy(site, _without(state))
        alone = replace(Deployment.alone(site.population), answer=own.answer)
        if self.answerer is None:
            return alone
        learned = below(_PREFIX, state)
        if self.answerer.uses_validation and not learned:
            return alone
        return replace(self.answerer.deploy(site, learned), answer=own.answer)

    def report(self, site: Site, state: State, nodes: slice = ALL) -> dict[str, Any]:
        self.inner.certify = self.certify
        which = () if nodes == ALL else (nodes,)
        out = self.inner.report(site, _without(state), *which)
        if self.answerer is not None and below(_PREFIX, state):
            out = {**out, "deployment": self.answerer.report(site, below(_PREFIX, state), *which)}
        return out

    def tables(self, site: Site, state: State, nodes: slice = ALL) -> dict[str, dict[str, Any]]:
        return self.inner.tables(site, _without(state), *(() if nodes == ALL else (nodes,)))


def _without(state: State) -> State:
    return {name: t for name, t in state.items() if not name.startswith(_PREFIX)}
