"""Any method's training under another's deployment: the study's field `deploy`.

So that what a method gains while it trains, and what answering together gains, can be told apart. All but
`self` and `uniform` look at validation labels, once, after training; under them no method trains on these
labels. Before the last round their nodes answer alone. What the method itself exchanges for its own
deployment is still exchanged, and charged; its variants are not shown.
"""

from dataclasses import replace
from typing import Any, NamedTuple

from lntrust.core.errors import LNTrustError
from lntrust.learners.population import PseudoLabels
from lntrust.methods.base import ALL, Deployment, Method, Site, Tensors, below, under
from lntrust.methods.independent import Independent
from lntrust.network import WireFormat
from lntrust.study.settings import identity_fields

_PREFIX = "deploy/"


class Both(NamedTuple):
    """The training method's state, and what the other has learned of who shall answer, once it has."""

    inner: Any
    answerer: Any = None


class DeployWith(Method[Both]):
    """Trains as `inner` does; `answerer` decides who answers, and how."""

    def __init__(self, inner: Method[Any], answerer: Method[Any]) -> None:
        super().__init__(inner.settings)
        self.inner, self.answerer = inner, answerer
        self.common_start, self.certificate = inner.common_start, inner.certificate
        self.wire_format, self.final_rounds = inner.wire_format, inner.final_rounds
        self.uses_validation = inner.uses_validation or answerer.uses_validation

    def more_identity(self) -> dict[str, Any]:
        alone = isinstance(self.answerer, Independent)  # which has nothing to be set to
        return {} if alone else {"answerer": identity_fields(self.answerer.settings)}

    def remarks(self, site: Site) -> list[str]:
        return self.inner.remarks(site)

    def check(self, site: Site) -> None:
        self.inner.check(site)
        if self.final_rounds and self.answerer.uses_validation:
            why = "train on validation labels, so that nobody can choose by them afterwards who shall answer"
            raise LNTrustError(f"final_rounds = {self.final_rounds}: {why}; set it to 0, or no deploy")
        if self.answerer.wire_format not in (WireFormat(), self.wire_format):
            why = f"who answers would speak otherwise than who trains ({self.answerer.wire_format})"
            deploy = f"deploy = {site.world.study.deploy!r}"
            raise LNTrustError(f"{deploy}: {why}; leave its settings query and reply out")
        self.answerer.check(site)

    def start(self, site: Site) -> Both:
        return Both(self.inner.start(site))

    def round(self, site: Site, state: Both, t: int) -> Both:
        return Both(self.inner.round(site, state.inner, t))

    def pseudo_labels(self, site: Site, state: Both) -> PseudoLabels | None:
        return self.inner.pseudo_labels(site, state.inner)

    def finish(self, site: Site, state: Both) -> Both:
        return Both(self.inner.finish(site, state.inner), self.answerer.choose(site))

    def deploy(self, site: Site, state: Both) -> Deployment:
        own = self.inner.deploy(site, state.inner)
        # Who looks at validation labels has learned nothing before the last round.
        if state.answerer is None and self.answerer.uses_validation:
            return replace(Deployment.alone(site.population), answer=own.answer)
        learned = self.answerer.unpack({}) if state.answerer is None else state.answerer
        return replace(self.answerer.deploy(site, learned), answer=own.answer)

    def report(self, site: Site, state: Both, nodes: slice = ALL) -> dict[str, Any]:
        which = () if nodes == ALL else (nodes,)
        out = self.inner.report(site, state.inner, *which)
        if state.answerer:
            out = {**out, "deployment": self.answerer.report(site, state.answerer, *which)}
        return out

    def tables(self, site: Site, state: Both, nodes: slice = ALL) -> dict[str, dict[str, Any]]:
        return self.inner.tables(site, state.inner, *(() if nodes == ALL else (nodes,)))

    def pack(self, state: Both) -> Tensors:
        chosen = self.answerer.pack(state.answerer) if state.answerer else {}
        return self.inner.pack(state.inner) | under(_PREFIX, chosen)

    def unpack(self, tensors: Tensors) -> Both:
        inner = {name: t for name, t in tensors.items() if not name.startswith(_PREFIX)}
        chosen = below(_PREFIX, tensors)
        return Both(self.inner.unpack(inner), self.answerer.unpack(chosen) if chosen else None)
