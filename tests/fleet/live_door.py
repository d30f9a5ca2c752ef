"""A door in a process of its own: `live_door.py NAME PORT FOLDER PEER=PORT…`. It echoes, until stdin ends."""

import sys
from pathlib import Path

from lntrust.fleet.peers.transport import Door
from lntrust.fleet.peers.zenoh_config import Place

name, port, folder, *peers = sys.argv[1:]
known = {each.split("=")[0]: f"127.0.0.1:{each.split('=')[1]}" for each in peers}
door = Door(
    Place(name, f"127.0.0.1:{port}", Path(folder), known),
    lambda asker, question: f"{name} to {asker}: ".encode() + question,
)
print("ready", flush=True)
sys.stdin.read()
door.close()
