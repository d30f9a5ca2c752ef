"""Freed memory is kept while a run lasts, and given back afterwards."""

import subprocess
import sys

import pytest

MEASURED = """
from pathlib import Path
from lntrust.core.memory import keep_memory, kept_memory

def held():
    "Megabytes of this process."
    (line,) = [line for line in Path("/proc/self/status").read_text().splitlines() if "VmRSS" in line]
    return int(line.split()[1]) // 1024

def used():
    blocks = [bytearray(1 << 20) for _ in range(300)]
    del blocks
    return held()

before = held()
with kept_memory():
    inside = used()
after = held()
keep_memory()
with kept_memory():
    used()
print(before, inside, after, held())
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc's")
def test_memory_is_kept_for_a_while_or_for_ever() -> None:
    told = subprocess.run([sys.executable, "-c", MEASURED], capture_output=True, text=True, check=True)
    before, inside, after, for_ever = map(int, told.stdout.split())
    assert inside > before + 250
    assert after < before + 50
    assert for_ever > before + 250
