"""Room for clients' bytes: one always gets to its end, and who dawdles makes way."""

import asyncio
import time
from collections.abc import Callable

import pytest

from lntrust.fleet.http import room as room_module
from lntrust.fleet.http.room import FREE, FullError, Guest, Room

ROOM = 1000


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room_module, "GRACE", 0.3)


def guests(count: int) -> tuple[Room, list[Guest]]:
    room = Room(ROOM)
    return room, [Guest(room) for _ in range(count)]


async def waits(guest: Guest, size: int) -> bool:
    """Whether it has to wait for so much; it gives up at once."""
    taking = asyncio.create_task(guest.take(size))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    if taking.done():
        return False
    taking.cancel()
    guest.leave()
    return True


def test_small_ones_never_wait() -> None:
    async def run() -> None:
        room, (first, second, *many) = guests(100)
        await first.take(FREE + 50 * ROOM)
        await second.take(FREE + ROOM)
        for guest in many:
            assert not await waits(guest, FREE)
        assert list(room.line) == [first, second]

    asyncio.run(run())


def test_the_first_has_what_it_needs_and_the_others_share() -> None:
    async def run() -> None:
        _, (first, second, third) = guests(3)
        await first.take(FREE + 50 * ROOM)
        await second.take(FREE + ROOM - 10)
        assert not await waits(third, FREE + 10)
        assert await waits(third, FREE + 11)
        first.leave()
        assert not await waits(third, FREE + 11), "the second is the first now, and counts no more"
        await first.take(FREE + ROOM - 11)

    asyncio.run(run())


@pytest.mark.parametrize("count", [2, 8])
def test_all_get_to_their_end_who_come_at_once(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each needs all the room, bit by bit."""
    monkeypatch.setattr(room_module, "GRACE", 60.0)

    async def whole(guest: Guest, done: Callable[[], None]) -> None:
        for size in range(FREE, FREE + 5 * ROOM, 100):
            await guest.take(size)
            await asyncio.sleep(0)
        guest.leave()
        done()

    async def run() -> int:
        _, all_ = guests(count)
        ended: list[None] = []
        await asyncio.gather(*(whole(guest, lambda: ended.append(None)) for guest in all_))
        return len(ended)

    assert asyncio.run(run()) == count


def test_who_dawdles_makes_way_for_who_waits() -> None:
    async def run() -> None:
        _, (slow, other, honest) = guests(3)
        told: list[str] = []
        for guest, name in ((slow, "slow"), (other, "other")):
            guest.make_way = lambda guest=guest, name=name: (told.append(name), guest.leave())  # type: ignore[misc]
            await guest.take(FREE + ROOM)
        await asyncio.sleep(0.4)
        assert told == [], "as long as nobody waits"
        await honest.take(FREE + ROOM)
        assert told == ["slow"]

    asyncio.run(run())


def test_time_in_which_the_node_computed_is_not_the_clients() -> None:
    async def run() -> None:
        _, (first, other, early, honest) = guests(4)
        told: list[str] = []
        await first.take(FREE + ROOM)
        await other.take(FREE + ROOM)
        waiting = asyncio.create_task(early.take(FREE + ROOM))
        await asyncio.sleep(0.35)  # more than the grace
        first.wait_for_client(lambda: (told.append("first"), first.leave()))  # type: ignore[arg-type,return-value]
        await asyncio.sleep(0.1)
        assert told == [], "it has only begun to read"
        waiting.cancel()
        await honest.take(FREE + ROOM)
        assert told == ["first"], "but does not go on"

    asyncio.run(run())


def test_who_cannot_make_way_is_waited_for_but_not_for_ever() -> None:
    async def run() -> None:
        _, (computing, other, late) = guests(3)
        await computing.take(FREE + ROOM)
        await other.take(FREE + ROOM)
        since = time.monotonic()
        with pytest.raises(FullError):
            await late.take(FREE + ROOM)
        assert time.monotonic() - since >= 0.6

    asyncio.run(run())
