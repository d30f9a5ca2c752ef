"""Draws are pure functions of their counters, whoever else is drawing."""

import math
from typing import get_args

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lntrust.core.randomness import (
    Stream,
    active_steps,
    batches,
    choose,
    dropout_mask,
    fold,
    generator,
    mix,
    normal,
    small_seed,
    stream_key,
    uniform,
)

WORDS = st.integers(-(2**63), 2**63 - 1)
STREAMS: tuple[Stream, ...] = get_args(Stream)


def node_keys(n: int, seed: int = 0, stream: Stream = "batches") -> torch.Tensor:
    return fold(stream_key(seed, stream), torch.arange(n))


def test_words_are_those_of_splitmix64() -> None:
    """The published outputs for seed 1234567."""
    known = [6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431,
             16408922859458223821]  # fmt: skip
    words = fold(torch.tensor(1234567), torch.arange(5))
    assert [word % 2**64 for word in words.tolist()] == known


def test_mix_has_no_collisions_and_moves_half_of_the_bits() -> None:
    words = torch.arange(-200_000, 200_000)
    mixed = mix(words)
    assert len(torch.unique(mixed)) == len(words)
    flipped = (mix(words ^ 1) ^ mixed).view(torch.uint8).numpy()
    share = np.unpackbits(flipped).mean()
    assert 0.49 < share < 0.51


@given(WORDS, st.integers(-(2**70), 2**70))
def test_fold_takes_python_integers_of_any_size(key: int, counter: int) -> None:
    word = fold(torch.tensor(key), counter)
    assert not torch.equal(word, fold(torch.tensor(key), counter + 1))
    wrapped = (counter + 2**63) % 2**64 - 2**63
    assert torch.equal(word, fold(torch.tensor(key), torch.tensor(wrapped)))
    assert torch.equal(word, fold(torch.tensor(key), counter + 2**64))


@pytest.mark.parametrize("seed", [0, 1, -1, 2**31, 2**63, 10**30])
def test_streams_differ_for_every_seed(seed: int) -> None:
    keys = [int(stream_key(seed, stream)) for stream in STREAMS]
    assert len(set(keys)) == len(STREAMS)
    assert set(keys).isdisjoint(int(stream_key(seed + 1, stream)) for stream in STREAMS)


def test_small_seeds_fit_31_bits_and_follow_every_counter() -> None:
    seeds = [small_seed(s, "estimators", node) for s in range(20) for node in range(20)]
    assert all(0 <= seed < 2**31 for seed in seeds)
    assert len(set(seeds)) == 400
    assert small_seed(3, "estimators", 7) == seeds[3 * 20 + 7]
    assert small_seed(3, "initial weights", 7) != small_seed(3, "estimators", 7)
    named = [(0, "graph", 1), (1, "graph", 1), (0, "partition", 1), (0, "graph", 2)]
    assert len({generator(*name).random() for name in named}) == 4  # type: ignore[arg-type]
    assert generator(0, "graph", 1).random() == generator(0, "graph", 1).random()


def test_uniform_is_uniform_on_the_half_open_interval() -> None:
    numbers = uniform(node_keys(50), 4000)
    assert numbers.shape == (50, 4000)
    assert numbers.dtype == torch.float64
    assert 0 <= numbers.min() < 1e-4
    assert 1 - 1e-4 < numbers.max() < 1
    counts = torch.histc(numbers, 20, 0, 1)
    assert (counts / counts.mean() - 1).abs().max() < 0.05


@given(st.integers(0, 1000))
def test_normal_draws_are_standard_normal_within_the_error_of_a_sample(word: int) -> None:
    """Five standard errors, of the first moments and of the distribution function at a few places."""
    n = 20_000
    x = normal(fold(torch.tensor(0), word), n)
    for power, moment, variance in ((1, 0, 1), (2, 1, 2), (3, 0, 15)):
        assert abs(float(x.pow(power).mean()) - moment) < 5 * math.sqrt(variance / n)
    for z in (-2.0, -1.0, 0.0, 0.5, 2.5):
        share = 0.5 * (1 + math.erf(z / math.sqrt(2)))
        assert abs(float((x < z).double().mean()) - share) < 5 * math.sqrt(share * (1 - share) / n)


@given(st.integers(0, 10**6), st.integers(1, 9), st.integers(1, 50))
def test_a_node_draws_the_same_alone_as_among_others(seed: int, n: int, count: int) -> None:
    keys = node_keys(n, seed)
    together, normals = uniform(keys, count), normal(keys, count)
    masks = dropout_mask(keys, (3, count), 0.5, torch.float32)
    chosen = choose(keys, 60, count)
    for i in range(n):
        alone = fold(stream_key(seed, "batches"), i)[None]
        assert torch.equal(uniform(alone, count)[0], together[i])
        assert torch.equal(normal(alone, count)[0], normals[i])
        assert torch.equal(dropout_mask(alone, (3, count), 0.5, torch.float32)[0], masks[i])
        assert torch.equal(choose(alone, 60, count)[0], chosen[i])


@pytest.mark.parametrize("p", [0.5, 0.3, 0.9])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("unit_shape", [(1,), (63,), (64,), (130,), (3, 5, 7), ()])
def test_dropout_drops_the_share_p_and_keeps_the_mean(
    p: float, dtype: torch.dtype, unit_shape: tuple[int, ...]
) -> None:
    keys = node_keys(40, stream="dropout")
    mask = dropout_mask(keys, (50, *unit_shape), p, dtype)
    assert (mask.shape, mask.dtype) == ((40, 50, *unit_shape), dtype)
    kept = mask[mask != 0]
    assert torch.allclose(kept, torch.full_like(kept, 1 / (1 - p)))
    spread = np.sqrt(p / (1 - p) / mask.numel())
    assert abs(float(mask.double().mean()) - 1) < 5 * spread
    for i in (0, 7, 39):
        assert torch.equal(dropout_mask(keys[i : i + 1], (50, *unit_shape), p, dtype)[0], mask[i])


@pytest.mark.parametrize("p", [0.5, 0.3])
def test_dropout_masks_of_nodes_rows_and_units_are_unrelated(p: float) -> None:
    mask = dropout_mask(node_keys(30, stream="dropout"), (30, 200), p, torch.float64)
    for rows in (mask.flatten(0, 1), mask.flatten(0, 1).T):
        correlation = torch.corrcoef(rows).fill_diagonal_(0)
        assert correlation.abs().max() < 7 / np.sqrt(rows.shape[1])
    assert not dropout_mask(node_keys(2), (3, 4), 1.0, torch.float32).any()  # of everything: no NaN


def test_choose_draws_without_replacement_and_uniformly() -> None:
    keys = node_keys(7000, stream="queries")
    chosen = choose(keys, 7, 3)
    assert chosen.shape == (7000, 3)
    assert (chosen.sort(1).values.diff(dim=1) > 0).all()
    for place in range(3):
        counts = torch.bincount(chosen[:, place], minlength=7)
        assert counts.sum() == 7000
        assert (counts - 1000).abs().max() < 5 * np.sqrt(1000)
    assert torch.equal(choose(keys[:5], 7, 7).sort(1).values, torch.arange(7).expand(5, 7))


SIZES = st.lists(st.integers(1, 40), min_size=1, max_size=6)


@given(st.integers(0, 10**6), SIZES, st.integers(1, 4))
def test_each_epoch_is_a_permutation(seed: int, sizes: list[int], epochs: int) -> None:
    keys, size = node_keys(len(sizes), seed), torch.tensor(sizes)
    drawn = batches(keys, size, torch.zeros_like(size), epochs * max(sizes))
    for i, m in enumerate(sizes):
        whole = drawn[i, : drawn.shape[1] // m * m].view(-1, m)
        assert torch.equal(whole.sort(1).values, torch.arange(m).expand_as(whole))


@given(st.integers(0, 10**6), SIZES, st.data())
def test_a_batch_is_a_piece_of_the_endless_sequence(seed: int, sizes: list[int], data: st.DataObject) -> None:
    """Whatever `first`, across epoch borders, and ragged nodes at once or one at a time."""
    keys, size = node_keys(len(sizes), seed), torch.tensor(sizes)
    count = data.draw(st.integers(1, 70))
    first = torch.tensor(data.draw(st.lists(st.integers(0, 150), min_size=len(sizes), max_size=len(sizes))))
    drawn = batches(keys, size, first, count)
    for i in range(len(sizes)):
        one = slice(i, i + 1)
        assert torch.equal(batches(keys[one], size[one], first[one], count)[0], drawn[i])
        long = batches(keys[one], size[one], torch.zeros(1, dtype=torch.int64), int(first[i]) + count)
        assert torch.equal(long[0, int(first[i]) :], drawn[i])


def test_shuffles_differ_between_epochs_and_nodes_and_are_fair() -> None:
    n, m = 300, 12
    keys, size = node_keys(n), torch.full((n,), m)
    drawn = batches(keys, size, torch.zeros_like(size), 20 * m).view(n, 20, m)
    assert len(torch.unique(drawn.view(-1, m), dim=0)) == n * 20
    # Every position is first equally often, and any place holds any position.
    counts = torch.stack([torch.bincount(drawn[..., j].flatten(), minlength=m) for j in range(m)])
    expected = n * 20 / m
    assert (counts - expected).abs().max() < 5 * np.sqrt(expected)
    far = batches(keys[:1], size[:1], torch.tensor([m * 10**14]), m)  # costs no more than a near one
    assert torch.equal(far.sort().values, torch.arange(m)[None])


@given(WORDS, st.integers(1, 30), st.integers(0, 200))
def test_active_steps_deal_out_every_draw(key: int, nodes: int, draws: int) -> None:
    active = active_steps(torch.tensor(key), nodes, draws)
    assert (active.shape[1], int(active.sum())) == (nodes, draws)
    assert active.any(1).all()  # no step without anybody
    assert not (active[1:] & ~active[:-1]).any()  # nobody takes step k+1 without step k


def test_active_steps_favour_nobody_and_stay_small() -> None:
    n, steps = 10_000, 5
    active = active_steps(torch.tensor(1), n, n * steps)
    assert len(active) < 30  # not n·steps rows, which would be half a gigabyte
    assert abs(float(active.sum(0).double().var()) / steps - 1) < 0.1  # Poisson


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_a_gpu_draws_the_same() -> None:
    keys, size = node_keys(20), torch.arange(5, 25)
    first = torch.arange(20) * 3
    on = keys.cuda()
    assert torch.equal(stream_key(3, "dropout", "cuda").cpu(), stream_key(3, "dropout"))
    assert torch.equal(uniform(on, 70).cpu(), uniform(keys, 70))
    assert torch.equal(choose(on, 50, 20).cpu(), choose(keys, 50, 20))
    assert torch.equal(batches(on, size.cuda(), first.cuda(), 64).cpu(), batches(keys, size, first, 64))
    for p in (0.5, 0.3):
        expected = dropout_mask(keys, (9, 70), p, torch.float32)
        assert torch.equal(dropout_mask(on, (9, 70), p, torch.float32).cpu(), expected)
    assert torch.equal(active_steps(on[0], 9, 50).cpu(), active_steps(keys[0], 9, 50))
