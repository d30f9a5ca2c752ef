"""Who may say what to whom: Zenoh's access control, by the names in certificates."""

from collections.abc import Sequence
from typing import Any


def access(me: str, peers: Sequence[str]) -> dict[str, Any]:
    """What each neighbour may send us and hear from us, by its certificate's name; all else is denied."""
    rules, policies = [], []
    for you in peers:
        mine = _messages(me, you)
        for flow, (asks, answers) in (("ingress", (you, me)), ("egress", (me, you))):
            for what, key in _messages(answers, asks):
                rules.append(_rule(f"{you} {flow} {what}", flow, what, key))
        policies.append(
            {
                "subjects": [you],
                "rules": [f"{you} {flow} {what}" for flow in ("ingress", "egress") for what, _ in mine],
            }
        )
    return {
        "enabled": True, "default_permission": "deny", "rules": rules, "policies": policies,
        "subjects": [{"id": you, "cert_common_names": [you]} for you in peers],
    }  # fmt: skip


def _messages(answerer: str, asker: str) -> list[tuple[str, str]]:
    """What the asker sends to the answerer, as Zenoh's kinds of messages, and under which key."""
    return [
        ("query", f"lntrust/{answerer}/ask/{asker}"),
        ("reply", f"lntrust/{asker}/ask/{answerer}"),  # to what the other one asked
        ("declare_queryable", f"lntrust/{asker}/**"),
        ("liveliness_token", f"lntrust/{asker}/alive"),
        ("liveliness_query", f"lntrust/{answerer}/alive"),
        ("declare_liveliness_subscriber", f"lntrust/{answerer}/alive"),
    ]


def _rule(name: str, flow: str, message: str, key: str) -> dict[str, Any]:
    return {"id": name, "permission": "allow", "flows": [flow], "messages": [message], "key_exprs": [key]}
