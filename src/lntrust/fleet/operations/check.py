"""Whether a node can run, and what is in its way."""

import ipaddress
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np

from lntrust.core.errors import LNTrustError
from lntrust.fleet.http.client import Client
from lntrust.fleet.logs import why
from lntrust.fleet.node import place_of
from lntrust.fleet.operations.certificates import NodeCertificate
from lntrust.fleet.peers import messages as wire
from lntrust.fleet.peers.neighbours import Neighbours
from lntrust.fleet.peers.traffic import TrafficCounters
from lntrust.fleet.peers.transport import Door
from lntrust.fleet.settings import DataSettings, NodeSettings, load_node
from lntrust.fleet.training.data import load_data
from lntrust.fleet.training.learner import LiveLearner
from lntrust.network import size
from lntrust.network.encodings import ReplyEncoding

_SOON = timedelta(days=14)
Grade = Literal["good", "warning", "bad"]


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at."""

    grade: Grade
    what: str
    text: str


def check_node(file: Path, wait: float) -> Iterator[Finding]:
    """Settings, certificates, data, model, then every neighbour: each finding as soon as it is known."""
    yield from _told("settings", _all(file, wait))


def _told(what: str, found: Iterator[Finding]) -> Iterator[Finding]:
    """What is found, until something is in the way of going on."""
    try:
        yield from found
    except LNTrustError as error:
        yield Finding("bad", what, str(error))


def _all(file: Path, wait: float) -> Iterator[Finding]:
    settings, fit = load_node(file), True
    yield Finding("good", "settings", f"node {settings.name}, {len(settings.neighbours)} neighbours")
    for what, found in (("certificate", _certificate(settings)), ("data", _data_and_model(settings))):
        for finding in _told(what, found):
            fit = fit and finding.grade != "bad"
            yield finding
    yield from _open_to_others(settings)
    yield Finding("good", "shown to neighbours", _shown(settings.data))
    if settings.peers and settings.trust.reply != "float32":
        form, C = ReplyEncoding(settings.trust.reply), len(settings.input.classes)
        few, all_ = (size(each.specs(1, C)).payload for each in (form, ReplyEncoding()))
        text = f"{form.name}: {few:,} bytes for what a node says about an input, instead of {all_:,}"
        yield Finding("good", "replies", text)
    if fit:
        yield from _told("network", _neighbours(settings, wait))


def _certificate(settings: NodeSettings) -> Iterator[Finding]:
    finding = partial(Finding, what="certificate")
    if not settings.peers:
        yield finding("good", text="none needed: no neighbour is a node")
        return
    own, now = NodeCertificate(settings.network.certificates), datetime.now(UTC)
    for fault in own.faults(settings.name):
        yield finding("bad", text=fault)
    if far := own.out_of_reach(_host(settings.network.listen)):
        yield finding("warning", text=far)  # fine, if it dials, or is behind a router
    if now < own.begins:
        yield finding("bad", text=f"holds from {own.begins:%F %R} UTC; this clock says {now:%F %R}")
    elif now > own.expires:
        yield finding("bad", text=f"has run out on {own.expires:%F %R} UTC; renew it")
    else:
        left = f"{(own.expires - now) / timedelta(days=1):.0f} days"
        grade: Grade = "warning" if own.expires - now < _SOON else "good"
        yield finding(grade, text=f"holds until {own.expires:%F %R} UTC, {left}")


def _open_to_others(settings: NodeSettings) -> Iterator[Finding]:
    """What strangers could get at: the node's key, and the door for clients."""
    key, door = settings.network.certificates / "node.key", settings.http
    if settings.peers and key.is_file() and key.stat().st_mode & 0o077:
        yield Finding("bad", "key", f"{key} can be read by others: chmod 600")
    loopback = _host(door.listen).lower() == "localhost"
    with suppress(ValueError):
        loopback = ipaddress.ip_address(_host(door.listen)).is_loopback
    if loopback or door.listen == "off":
        return
    open_ = "whoever reaches it can ask, without a token: set http.token, or listen on 127.0.0.1"
    plain = "tokens and inputs can be read on the way: put a proxy with TLS before it"
    bad = door.token is None
    found = f"http.listen = {door.listen}: {open_ if bad else plain}"
    yield Finding("bad" if bad else "warning", "clients", found)


def _host(listen: str) -> str:
    return listen.rpartition(":")[0].strip("[]")


def _data_and_model(settings: NodeSettings) -> Iterator[Finding]:
    data = load_data(settings)
    sizes = f"{len(data.train)} to train, {len(data.validation)} to validate, {len(data.shard)} unlabelled"
    yield Finding("good", "data", sizes)
    kind = settings.model.kind
    try:
        learner = LiveLearner(settings, data)
        begun = time.perf_counter()
        learner.snapshot(0).predict(data.inputs[:1])
    except LNTrustError as error:
        yield Finding("bad", "model", str(error))
    except Exception as error:  # the model is the user's, and may fail in any way
        yield Finding("bad", "model", f"model.kind = {kind!r}: {why(error)}")
    else:
        took, fit = 1000 * (time.perf_counter() - begun), wire.at_once(settings.input)
        yield Finding("good", "model", f"{kind} answers in {took:.1f} ms; {fit:,} inputs fit into a question")


def _shown(data: DataSettings) -> str:
    """What leaves the device, in so many words."""
    if data.probe_with == "none":
        return "nothing: without probes it learns and answers alone"
    shard = "nothing" if data.shard == "none" else Path(data.shard).name
    clients = f"{'what' if data.deployed else 'nothing'} clients ask about"
    return f"to probe: labelled inputs ({Path(data.probe_with).name}); to learn: {shard}; deployed: {clients}"


def _neighbours(settings: NodeSettings, wait: float) -> Iterator[Finding]:
    running = None
    with suppress(LNTrustError, OSError):
        running = None if settings.http.listen == "off" else Client(settings).status()
    if running is not None:
        yield Finding("good", "node", "runs already; what follows is what it says")
        for name, each in running["neighbours"].items():
            yield _met(name, each["refused"], each["round_trip"], "there" if each["present"] else "not there")
        return
    facts = wire.facts(settings.input, len(settings.neighbours), 0)
    traffic = TrafficCounters([each.name for each in settings.neighbours])
    with ExitStack() as stack:
        door = None
        if settings.peers:
            door = stack.enter_context(closing(Door(place_of(settings), lambda *_: b"")))
        neighbours = stack.enter_context(closing(Neighbours(settings, traffic, door, lambda: facts)))
        neighbours.wait_for_all(wait)
        neighbours.meet(wait)
        for name, each in neighbours.members.items():
            if each.server is not None:
                yield _asked(settings, neighbours, name, wait)
                continue
            absent = f"no answer within {wait:g} s: off, elsewhere, or we are not on its list"
            yield _met(name, each.refused, each.round_trip, "there" if each.round_trip else absent)


def _met(name: str, refused: str | None, trip: float | None, text: str) -> Finding:
    grade: Grade = "bad" if refused else "good" if text == "there" else "warning"
    took = "" if trip is None else f", round trip {1000 * trip:.1f} ms"
    return Finding(grade, name, (refused or text) + took)


def _asked(settings: NodeSettings, neighbours: Neighbours, name: str, wait: float) -> Finding:
    """A server, which is asked about an input of zeros."""
    x = np.zeros((1, *settings.input.shape), dtype=settings.input.dtype)
    begun = time.perf_counter()
    heard, failed = neighbours.ask([name], x, "check", timeout=wait)
    if name not in heard:
        return Finding("warning", name, failed[name].text)
    took = 1000 * (time.perf_counter() - begun)
    return Finding("good", name, f"answers, round trip {took:.1f} ms; it has no certificate")
