"""How Zenoh is set up between nodes: TLS with certificates on both sides, and who may send what to whom."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

LIMIT = 4 << 20  # bytes of a message that we take
_HARD_LIMIT = LIMIT + (64 << 10)  # beyond this Zenoh drops it before we can say why

# How long a message waits for room on its way, in µs, before it is dropped. Zenoh's own 1 and 50 ms are too
# short for megabytes between busy machines; blocking would wait for a hung neighbour, past any deadline.
_QUEUE = {
    "size": {"data": 16},
    "congestion_control": {"drop": {"wait_before_drop": 20_000, "max_wait_before_drop_fragments": 250_000}},
}


@dataclass(frozen=True)
class Place:
    """Where a node stands: its name, where it listens, its certificates, its neighbours.

    Of each neighbour: the name in its certificate, and where it listens; without an address it comes to us.
    """

    name: str
    listen: str  # host:port
    certificates: Path  # node.pem, node.key, ca.pem
    peers: Mapping[str, str | None]
    multicast: bool = False  # find neighbours without an address on the local network


def configuration(place: Place) -> dict[str, Any]:
    """Zenoh's settings: nothing but TLS, nobody but the neighbours, no discovery, no shared memory."""
    key, certificate, authority = (str(place.certificates / f) for f in ("node.key", "node.pem", "ca.pem"))
    return {
        "mode": "peer",
        "listen": {"endpoints": [f"tls/{place.listen}"]},
        "connect": {
            "endpoints": [f"tls/{address}" for address in place.peers.values() if address],
            "timeout_ms": -1, "exit_on_failure": False,
        },
        "scouting": {"multicast": {"enabled": place.multicast}, "gossip": {"enabled": False}},
        "transport": {
            "shared_memory": {"enabled": False},  # it would pass by TLS
            "link": {
                "protocols": ["tls"],
                # A frozen neighbour is given up after two seconds.
                "tx": {"lease": 2000, "keep_alive": 4, "queue": _QUEUE},
                "rx": {"max_message_size": _HARD_LIMIT + 4096},
                "tls": {
                    "root_ca_certificate": authority, "enable_mtls": True, "verify_name_on_connect": True,
                    "close_link_on_expiration": True,  # else a certificate that runs out ends nothing
                    "listen_private_key": key, "listen_certificate": certificate,
                    "connect_private_key": key, "connect_certificate": certificate,
                },
            },
        },
        "low_pass_filter": [
            {"flows": ["ingress"], "messages": ["put", "delete", "query", "reply"], "key_exprs": ["**"],
             "size_limit": _HARD_LIMIT},
        ],
        "access_control": _access(place),
    }  # fmt: skip


def _access(place: Place) -> dict[str, Any]:
    """What each neighbour may send us and get from us, by its certificate's name; all else is denied."""
    rules = {
        you: [
            {"id": f"{you} {flow} {kind}", "permission": "allow", "flows": [flow], "messages": [kind],
             "key_exprs": [key]}
            for flow, asker, answerer in (("ingress", you, place.name), ("egress", place.name, you))
            for kind, key in _messages(asker, answerer).items()
        ]
        for you in place.peers
    }  # fmt: skip
    return {
        "enabled": True, "default_permission": "deny",
        "subjects": [{"id": you, "cert_common_names": [you]} for you in rules],
        "rules": [rule for theirs in rules.values() for rule in theirs],
        "policies": [{"subjects": [you], "rules": [rule["id"] for rule in rules[you]]} for you in rules],
    }  # fmt: skip


def _messages(asker: str, answerer: str) -> dict[str, str]:
    """The kinds of Zenoh's messages that the asker sends to the answerer, each with its key."""
    return {
        "query": f"lntrust/{answerer}/ask/{asker}",
        "reply": f"lntrust/{asker}/ask/{answerer}",  # to what the other one asked
        "declare_queryable": f"lntrust/{asker}/**",
        "liveliness_token": f"lntrust/{asker}/alive",
        "liveliness_query": f"lntrust/{answerer}/alive",
        "declare_liveliness_subscriber": f"lntrust/{answerer}/alive",
    }
