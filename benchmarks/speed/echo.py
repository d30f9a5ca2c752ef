"""A bare Zenoh queryable, to measure a node by: python -m benchmarks.speed.echo NAME PORT FOLDER PEER BYTES.

The same links as a node's (mutual TLS, access control, no shared memory), and nothing else: every question is
answered at once, in Zenoh's own thread, with so many bytes.
"""

import json
import sys
from pathlib import Path
from typing import Any

from lntrust.fleet.peers.zenoh_config import Place, configuration


def main() -> None:
    import zenoh

    name, port, folder, peer, count = sys.argv[1:]
    place = Place(name, f"127.0.0.1:{port}", Path(folder), {peer: None})
    session = zenoh.open(zenoh.Config.from_json5(json.dumps(configuration(place))))
    answer = bytes(int(count))

    def echo(query: Any) -> None:
        assert query.payload is not None
        query.payload.to_bytes()
        query.reply(str(query.key_expr), answer)

    declared = [
        session.declare_queryable(f"lntrust/{name}/ask/{peer}", echo),
        session.liveliness().declare_token(f"lntrust/{name}/alive"),
    ]
    print("ready", flush=True)
    sys.stdin.read()
    del declared
    session.close()  # type: ignore[no-untyped-call]


if __name__ == "__main__":
    main()
