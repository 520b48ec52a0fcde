"""Partitions: exact cover for every recipe, the recipes' distributions computed independently, the size guard."""

from __future__ import annotations

import itertools
import logging
import math
import re
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chi2_contingency, nchypergeom_wallenius

from search_spaces.errors import UserError
from trainables.data import partition as module
from trainables.data.partition import RECIPES, Task, completed, dir_class, partition

RECIPE_NAMES = ["iid", "pathological", "dir_class", "dir_client", "dir_dominant", "dir_pfl"]


def labels(classes: int = 10, each: int = 60, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).permutation(np.repeat(np.arange(classes), each))


def table(parts: list[np.ndarray], y: np.ndarray, classes: int) -> np.ndarray:
    return np.array([[int((y[p] == c).sum()) for c in range(classes)] for p in parts])


def test_the_registered_recipes() -> None:
    assert sorted(RECIPES) == sorted(RECIPE_NAMES)


@pytest.mark.parametrize("recipe", RECIPE_NAMES)
@settings(max_examples=25, deadline=None)
@given(
    clients=st.integers(1, 12),
    omega=st.sampled_from([0.05, 0.3, 1.0, 50.0]),
    seed=st.integers(0, 2**32 - 1),
    uneven=st.booleans(),
)
def test_exact_cover_disjoint_and_deterministic(
    recipe: str, clients: int, omega: float, seed: int, uneven: bool
) -> None:
    y = labels(8, 40)
    if uneven:
        y = y[: 8 * 40 - 37]
    options = {"classes": 8, "omega": omega, "classes_per_client": 8 if clients == 1 else 4, "min_size": 2}
    parts = partition(recipe, y, clients, rng=np.random.default_rng(seed), **options)
    assert len(parts) == clients
    assert np.array_equal(np.sort(np.concatenate(parts)), np.arange(len(y)))
    assert min(map(len, parts)) >= 2
    again = partition(recipe, y, clients, rng=np.random.default_rng(seed), **options)
    assert all(np.array_equal(a, b) for a, b in zip(parts, again, strict=True))


def test_classes_are_cut_one_after_the_other_and_shuffled_for_every_client() -> None:
    """As it is written down, with the same generator: a partition is part of a run's record, so that no draw may
    differ."""
    y, counts = labels(3, 7), np.array([[2, 0, 4], [5, 6, 0], [0, 0, 0], [0, 1, 3]])
    fast, plain = np.random.default_rng(2), np.random.default_rng(2)
    held: list[list[int]] = [[], [], [], []]
    for label in range(3):
        shuffled = plain.permutation([place for place, one in enumerate(y) if one == label]).tolist()
        for client in range(4):
            for _ in range(counts[client, label]):
                held[client].append(shuffled.pop(0))
    expected = [plain.permutation(np.array(part, dtype=np.int64)).tolist() for part in held]
    assert [part.tolist() for part in module._deal(counts, y, fast)] == expected
    assert fast.bit_generator.state == plain.bit_generator.state


@pytest.mark.parametrize("recipe", RECIPE_NAMES)
def test_another_seed_gives_another_partition(recipe: str) -> None:
    y = labels()
    a, b = (
        partition(recipe, y, 5, classes=10, rng=np.random.default_rng(s), omega=0.5, classes_per_client=4)
        for s in (1, 2)
    )
    assert not all(np.array_equal(p, q) for p, q in zip(a, b, strict=True))


@pytest.mark.parametrize("recipe", ["iid", "dir_client"])
def test_equal_sizes(recipe: str) -> None:
    parts = partition(recipe, labels(10, 60)[:593], 7, classes=10, rng=np.random.default_rng(0), omega=0.1)
    assert sorted(map(len, parts), reverse=True) == [85] * 5 + [84] * 2


def test_iid_has_the_law_of_a_shuffle() -> None:
    """Mean n_c/N and variance of a hypergeometric draw, over 4000 tables."""
    task, rng = Task(np.array([30, 20, 10]), 4, 1.0, 1), np.random.default_rng(0)
    draws = np.array([RECIPES["iid"](task, rng) for _ in range(4000)])
    assert np.allclose(draws.mean(0), np.array([30, 20, 10]) / 4, atol=0.15)
    share, n = 15, 60
    expected = [share * (k / n) * (1 - k / n) * (n - share) / (n - 1) for k in (30, 20, 10)]
    assert np.allclose(draws.var(0), expected, rtol=0.1)


class Replay:
    """A generator whose Dirichlet draws are prescribed, to follow a recipe by hand."""

    def __init__(self, *draws: list[float], integers: int = 0) -> None:
        self.draws, self.last = [np.array(d) for d in draws], integers

    def dirichlet(self, alpha: np.ndarray, size: int | None = None) -> np.ndarray:
        if size is None:
            return self.draws.pop(0)
        taken, self.draws = self.draws[:size], self.draws[size:]
        return np.stack(taken)

    def standard_gamma(self, shape: float, out: np.ndarray) -> None:
        out[:] = self.draws.pop(0)

    def integers(self, high: int) -> int:
        return self.last


def test_dir_class_by_hand() -> None:
    """Three classes of 20, three clients, n/N = 20. Class 0 gives 15, 3, 2. Class 1 splits 10, 7, 3 -> 25, 10, 5.
    Client 0 is now full (25 >= 20), so the shares .5, .3, .2 of class 2 become 0, .6, .4 -> 0, 12, 8."""
    rng = Replay([0.75, 0.15, 0.1], [0.5, 0.35, 0.15], [0.5, 0.3, 0.2])
    counts = RECIPES["dir_class"](Task(np.array([20, 20, 20]), 3, 0.1, 1), rng)  # type: ignore[arg-type]
    assert counts.tolist() == [[15, 10, 0], [3, 7, 12], [2, 3, 8]]


def test_dir_class_gives_a_class_away_whole_and_nothing_to_who_has_n_over_N() -> None:
    """The shares 1/6, 3/6, 2/6 of class 0 add up to less than 1 in double precision: 3, 10, and all that is left, 7.
    With 10 of class 1 client 1 has exactly n/N = 20, and the shares of class 2 become 5/7, 0, 2/7 -> 14, 0, 6."""
    rng = Replay([0.1, 0.3, 0.2], [0.25, 0.5, 0.25], [0.5, 0.3, 0.2])
    counts = RECIPES["dir_class"](Task(np.array([20, 20, 20]), 3, 0.1, 1), rng)  # type: ignore[arg-type]
    assert counts.tolist() == [[3, 5, 14], [10, 10, 0], [7, 5, 6]]


def test_dir_class_gives_up_on_a_draw_that_only_full_clients_share() -> None:
    rng = Replay([1.0, 0.0], [1.0, 0.0])
    assert RECIPES["dir_class"](Task(np.array([20, 10]), 2, 0.01, 1), rng) is None  # type: ignore[arg-type]


@pytest.mark.parametrize("omega", [0.1, 1.0, 100.0])
def test_dir_class_of_one_class_has_dirichlet_moments(omega: float) -> None:
    """With one class nobody is full beforehand: the shares are Dir(ω·1_N) with variance (1/N)(1 − 1/N)/(Nω + 1)."""
    task, rng = Task(np.array([10_000]), 5, omega, 1), np.random.default_rng(0)
    shares = np.array([RECIPES["dir_class"](task, rng)[:, 0] for _ in range(4000)]) / 10_000
    assert np.allclose(shares.mean(0), 0.2, atol=0.02)
    assert np.allclose(shares.var(0), 0.16 / (5 * omega + 1), rtol=0.12)


def test_dir_client_draws_by_class_weight_without_replacement() -> None:
    """First client, classes of 1000 and weights .8, .2: the first of its samples is of class 0 with probability .8;
    with a share this small against the pool the expected count is close to .8 of the share."""
    rng = np.random.default_rng(0)

    class Fixed:
        dirichlet = staticmethod(lambda alpha: np.array([0.8, 0.2]))
        gumbel, random = rng.gumbel, rng.random

    task = Task(np.array([1000, 1000]), 100, 1.0, 1)
    first = np.array([RECIPES["dir_client"](task, Fixed())[0] for _ in range(100)])  # type: ignore[arg-type]
    assert first.sum(1).tolist() == [20] * 100
    assert first[:, 0].mean() == pytest.approx(16, abs=0.6)


def test_dir_client_of_many_clients_draws_from_the_same_distribution() -> None:
    """Waiting times give Wallenius' noncentral hypergeometric distribution, as one weighted draw does."""
    left, shares, rng = np.array([30, 0, 20]), np.array([0.75, 0.0, 0.25]), np.random.default_rng(0)
    drawn = np.array([module._by_waiting_times(left, shares, 25, rng)[0] for _ in range(2_000)])
    exact = nchypergeom_wallenius(50, 30, 25, 3.0)
    assert abs(drawn.mean() - exact.mean()) < 4 * exact.std() / math.sqrt(len(drawn))
    assert drawn.var() == pytest.approx(exact.var(), rel=4 * math.sqrt(2 / len(drawn)))
    # Where what has weight is used up, the rest comes from the other classes.
    assert module._by_waiting_times(left, np.array([1.0, 0.0, 0.0]), 37, rng).tolist() == [30, 0, 7]
    # A class of a share that is smaller by far comes after all others that have one, and before those that have none.
    assert module._by_waiting_times(np.array([30, 5, 20]), np.array([1.0, 5e-324, 0.0]), 37, rng).tolist() == [30, 5, 2]
    assert module._by_waiting_times(left, shares, 0, rng).tolist() == [0, 0, 0]
    held = table(partition("dir_client", labels(), module.FEW + 1, classes=10, rng=rng, min_size=1), labels(), 10)
    assert held.sum(axis=0).tolist() == [60] * 10 and set(held.sum(axis=1)) == {5, 6}


def test_dir_client_takes_what_is_left_and_fills_up() -> None:
    """Client 0 wants class 0 alone, which has 3 of its 10 samples: it takes them all and 7 others."""

    class Fixed:
        rng = np.random.default_rng(0)
        dirichlet = staticmethod(lambda alpha: np.array([1.0, 0.0, 0.0]))
        gumbel, random = rng.gumbel, rng.random

    counts = RECIPES["dir_client"](Task(np.array([3, 9, 8]), 2, 1.0, 1), Fixed())  # type: ignore[arg-type]
    assert counts[0, 0] == 3
    assert counts.sum(1).tolist() == [10, 10]


def test_dir_dominant_by_hand() -> None:
    """Two clients, two classes: class 0's largest share goes to client 0; class 1's first draw would too, is rejected,
    the second is accepted. 10·(.7, .3) -> 7, 3; 10·(.25, .75) -> 2, 7, and the one left over goes to the client
    `integers` names."""
    rng = Replay([0.7, 0.3], [0.9, 0.1], [0.25, 0.75], integers=0)
    counts = RECIPES["dir_dominant"](Task(np.array([10, 10]), 2, 0.1, 1), rng)  # type: ignore[arg-type]
    assert counts.tolist() == [[7, 3], [3, 7]]


@pytest.mark.parametrize("omega", [0.05, 0.1, 0.5, 10.0])
@pytest.mark.parametrize(("clients", "classes"), [(1, 3), (7, 10), (23, 10)])
def test_dir_dominant_draws_what_numpys_dirichlet_draws(clients: int, classes: int, omega: float) -> None:
    """Class after class by `Generator.dirichlet`, as the recipe is written down: the same table, and the generator is
    left in the same state. A partition is part of a run's record, so that not one draw may differ."""

    def rounded(shares: np.ndarray, size: int) -> np.ndarray:
        counts = (shares * size).astype(np.int64)
        counts[plain.integers(len(counts))] += size - counts.sum()
        return counts

    fast, plain = np.random.default_rng(11), np.random.default_rng(11)
    task = Task(np.arange(900, 900 + classes), clients, omega, 1)
    for _ in range(20):
        blocks = [min(classes, clients - start) for start in range(0, clients, classes)]
        per_block = np.stack([rounded(np.array(blocks) / clients, int(size)) for size in task.sizes], axis=1)
        expected = []
        for members, sizes in zip(blocks, per_block, strict=True):
            counts, had = np.zeros((members, classes), dtype=np.int64), set[int]()
            for label, size in enumerate(sizes):
                shares = plain.dirichlet(np.full(members, omega))
                while int(shares.argmax()) in had:
                    shares = plain.dirichlet(np.full(members, omega))
                had = had | {int(shares.argmax())} if len(had) + 1 < members else set()
                counts[:, label] = rounded(shares, int(size))
            expected.append(counts)
        assert RECIPES["dir_dominant"](task, fast).tolist() == np.concatenate(expected).tolist()
        assert fast.bit_generator.state == plain.bit_generator.state


def test_dir_dominant_draws_no_more_than_gammas() -> None:
    """Ten thousand tables of 100 clients are three million draws: those of ω = 0.1 are not numpy's slow ones."""
    real = np.random.default_rng(0)

    class Gammas:
        standard_gamma, integers = staticmethod(real.standard_gamma), staticmethod(real.integers)

    counts = RECIPES["dir_dominant"](Task(np.full(10, 129), 100, 0.1, 1), Gammas())  # type: ignore[arg-type]
    assert counts.sum() == 1290


def test_pathological_with_two_of_ten_classes() -> None:
    y = labels(10, 100)
    counts = table(
        partition("pathological", y, 10, classes=10, rng=np.random.default_rng(0), classes_per_client=2), y, 10
    )
    assert ((counts > 0).sum(1) == 2).all()
    assert ((counts > 0).sum(0) == 2).all()
    # ceil(10/10·2) = 2 takers, equal share 50: the first gets 5 … 49, the second the rest.
    assert (counts[::2].max(1) <= 49).all() and (counts[::2][counts[::2] > 0] >= 5).all()
    assert len(set(counts[::2][counts[::2] > 0])) > 3


@pytest.mark.parametrize("clients", range(1, 14))
@pytest.mark.parametrize("classes", [2, 5, 10])
def test_pathological_never_loses_a_class_or_starves_a_client(clients: int, classes: int) -> None:
    for k in range(1, classes + 1):
        if clients * k < classes:
            continue
        counts = RECIPES["pathological"](Task(np.full(classes, 200), clients, 1.0, k), np.random.default_rng(0))
        assert (counts.sum(0) == 200).all()
        assert ((counts > 0).sum(1) <= k).all()
        assert (counts.sum(1) > 0).all()
        if clients * k % classes == 0 and classes % k == 0:
            assert ((counts > 0).sum(1) == k).all()
            assert ((counts > 0).sum(0) == clients * k // classes).all()


def test_dir_pfl_asks_for_forty() -> None:
    for seed in range(5):
        parts = partition("dir_pfl", labels(10, 300), 10, classes=10, rng=np.random.default_rng(seed), omega=0.1)
        assert min(map(len, parts)) >= 40
    # n/N/2 = 15 is the smaller bound here.
    parts = partition("dir_pfl", labels(10, 30), 10, classes=10, rng=np.random.default_rng(0), omega=0.5)
    assert min(map(len, parts)) >= 15


def test_dir_pfl_gives_what_was_asked_for_where_that_is_more_than_half_an_equal_share() -> None:
    """n/N/2 is 7 of 60,000 samples and 4,000 clients. A table that gave everybody as much before is the same one."""
    y = labels(10, 6000)
    parts = partition("dir_pfl", y, 4000, classes=10, rng=np.random.default_rng(0), omega=0.1, min_size=10)
    assert min(map(len, parts)) >= 10 and np.array_equal(np.sort(np.concatenate(parts)), np.arange(len(y)))
    few = labels(10, 30)
    asked, half = (
        partition(recipe, few, 10, classes=10, rng=np.random.default_rng(0), omega=50.0, min_size=least)
        for recipe, least in (("dir_pfl", 20), ("dir_class", 15))
    )
    assert all(np.array_equal(*pair) for pair in zip(asked, half, strict=True)) and min(map(len, asked)) >= 20
    with pytest.raises(UserError, match="clients must be at most 5454, for each to hold at least 11 of the 60000"):
        partition("dir_pfl", y, 5455, classes=10, rng=np.random.default_rng(0), min_size=11)


@pytest.mark.parametrize(
    ("classes", "each", "clients", "k", "least"),
    [
        (10, 60, 53, 2, 11),
        (10, 60, 37, 3, 16),
        (7, 100, 33, 2, 21),
        (10, 6, 8, 2, 7),
        (3, 50, 13, 1, 11),
        (2, 10, 11, 1, 10),
    ],
)
def test_pathological_refuses_at_once_with_what_would_do(
    classes: int, each: int, clients: int, k: int, least: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the first table is drawn; and both the clients and the minimum that it names do, with any seed."""
    y = labels(classes, each)
    monkeypatch.setattr(module, "DRAWS", 20)

    def smallest(clients: int, least: int, seed: int = 0) -> int:
        rng = np.random.default_rng(seed)
        counts = table(
            partition("pathological", y, clients, classes=classes, rng=rng, classes_per_client=k, min_size=least),
            y,
            classes,
        )
        assert ((counts > 0).sum(axis=1) <= k).all()
        return int(counts.sum(axis=1).min())

    with monkeypatch.context() as patch:
        patch.setitem(RECIPES, "pathological", lambda task, rng: pytest.fail("a table was drawn"))
        with pytest.raises(UserError, match="clients must be few enough for each to hold at least") as refused:
            smallest(clients, least)
    found = re.search(r"Use (\d+) clients(?:,| or) a min_samples of at most (\d+)", str(refused.value))
    assert found is not None, str(refused.value)
    assert ("a larger classes_per_client or another partition." in str(refused.value)) == (
        least * clients <= classes * each
    )
    fewer, less = map(int, found.groups())
    assert fewer < clients and less < least
    for seed in range(5):
        assert smallest(fewer, least, seed) >= least and smallest(clients, less, seed) >= less
    for more in ((fewer + 1, least), (clients, less + 1)):
        with pytest.raises(UserError):
            smallest(*more)


def test_what_nobody_needs_is_dealt_as_it_was_drawn() -> None:
    """By hand: class 0 has 12, of which 2 and 1 are needed; of the other 9 client 0 gets 3 (4 of 12), client 1 gets 6.
    Class 1 has 7, all drawn for client 1; 3 are client 0's, and the other 4 go where they were drawn."""
    drawn, least = np.array([[4, 0], [8, 7]]), np.array([[2, 3], [1, 0]])
    assert module._filled(drawn, least).tolist() == [[5, 3], [7, 4]]
    # Class 0 of 10, 4 needed: 6 · 1/10, 6 · 2/10 and 6 · 7/10 rounded down are 0, 1, 4, and one more goes to the last.
    assert module._filled(np.array([[1], [2], [7]]), np.array([[4], [0], [0]])).tolist() == [[4], [1], [5]]


def test_dir_dominant_of_many_clients_draws_again_only_the_blocks_that_do_not_pass(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By hand, a minimum of 3: of three blocks of two clients the second misses 1, then 2, which is no better, then
    nothing. The last block, of one client, has what it needs at once."""
    drawn = [
        np.array([[[3, 1], [1, 3]], [[4, 2], [0, 2]], [[2, 2], [2, 2]]]),
        np.array([[[4, 3], [0, 1]]]),
        np.array([[[2, 3], [2, 1]]]),
        np.array([[[2, 2]]]),
    ]
    asked: list[tuple[int, list[list[int]]]] = []

    def prescribed(members: int, sizes: np.ndarray, omega: float, rng: np.random.Generator) -> np.ndarray:
        asked.append((members, sizes.tolist()))
        return drawn[len(asked) - 1].copy()

    monkeypatch.setattr(module, "_in_blocks", prescribed)
    monkeypatch.setattr(module, "FEW", 6)
    task = Task(np.array([14, 14]), 7, 0.1, 1)
    found = module._block_by_block(task, 3, np.random.default_rng(0))
    assert found.tolist() == [[3, 1], [1, 3], [2, 3], [2, 1], [2, 2], [2, 2], [2, 2]]
    assert asked == [(2, [[4, 4]] * 3), (2, [[4, 4]]), (2, [[4, 4]]), (1, [[2, 2]])]
    # Where no more than three rows are drawn again, the block is the draw of it that misses least.
    asked.clear()
    monkeypatch.setattr(module, "ROWS_AGAIN", 3)
    drawn[2] = np.array([[[4, 3], [0, 1]]])
    found = module._block_by_block(task, 3, np.random.default_rng(0))
    assert found.tolist() == [[3, 1], [1, 3], [4, 2], [0, 2], [2, 2], [2, 2], [2, 2]] and len(asked) == 4


def test_dir_dominant_block_by_block_has_the_distribution_of_whole_tables_that_pass() -> None:
    """6 clients of 2 classes are three blocks; of whole tables of 30 and 30 samples one in seven has 9 for everybody.
    How often each table of the first block occurs, and whether the two others are alike: chi-square, 600 of each."""
    task, rng = Task(np.array([30, 30]), 6, 0.5, 1), np.random.default_rng(0)
    every = (module.dir_dominant(task, rng) for _ in itertools.count())
    whole = list(itertools.islice((counts for counts in every if counts.sum(axis=1).min() >= 9), 600))
    blocks = [module._block_by_block(task, 9, rng) for _ in range(600)]
    assert min(int(counts.sum(axis=1).min()) for counts in blocks) == 9

    def seen(tables: list[np.ndarray]) -> Counter[tuple[int, ...]]:
        return Counter((*counts[0], *counts[1], int((counts[2:4] == counts[4:6]).all())) for counts in tables)

    one, other = seen(whole), seen(blocks)
    often = [[number[key] for key in one | other if one[key] + other[key] >= 20] for number in (one, other)]
    assert len(often[0]) >= 10 and chi2_contingency(often).pvalue > 0.01


@pytest.mark.parametrize("clients", [101, 110, 230])
def test_dir_dominant_of_many_clients_is_the_first_table_where_that_passes(clients: int) -> None:
    """To the last bit, and the generator is left in the same state."""
    task = Task(np.arange(9_000, 9_010), clients, 0.1, 1)
    one, other = np.random.default_rng(3), np.random.default_rng(3)
    expected = module.dir_dominant(task, one)
    assert module._block_by_block(task, int(expected.sum(axis=1).min()), other).tolist() == expected.tolist()
    assert one.bit_generator.state == other.bit_generator.state


def test_dir_dominant_draws_no_more_rows_the_fewer_tables_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 1,000 clients with 60 samples each on average one in a thousand has fewer than 20: a few blocks of ten are
    drawn again, where it was every table. With 6 each hardly a block gives all 5, and the table is completed after so
    many rows; of a hundred clients whole tables are drawn, as ever."""
    rows: list[int] = []
    in_blocks = module._in_blocks

    def noting(members: int, sizes: np.ndarray, omega: float, rng: np.random.Generator) -> np.ndarray:
        rows.append(members * len(sizes))
        return in_blocks(members, sizes, omega, rng)

    def dealt(each: int, clients: int, least: int) -> int:
        rows.clear()
        parts = partition(
            "dir_dominant", y[: each * clients], clients, classes=10, rng=np.random.default_rng(0), min_size=least,
            omega=0.1,
        )  # fmt: skip
        assert min(map(len, parts)) >= least and len(np.unique(np.concatenate(parts))) == each * clients
        return sum(rows)

    y = labels(10, 6000)
    monkeypatch.setattr(module, "_in_blocks", noting)
    assert 1_000 < dealt(60, 1000, 20) <= 1_100
    monkeypatch.setattr(module, "ROWS_AGAIN", 5_000)
    assert 6_000 <= dealt(6, 1000, 5) < 7_000
    monkeypatch.setattr(module, "DRAWS", 30)
    assert dealt(6, 100, 6) == 3_000


def test_size_guard_draws_again() -> None:
    y = labels(10, 100)

    def smallest(seed: int, min_size: int) -> int:
        return min(
            map(
                len,
                partition(
                    "dir_class", y, 10, classes=10, rng=np.random.default_rng(seed), omega=0.05, min_size=min_size
                ),
            )
        )

    assert min(smallest(s, 20) for s in range(20)) >= 20 > min(smallest(s, 0) for s in range(20))


def test_what_no_draw_gives_is_taken_from_those_that_have_most(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "DRAWS", 200)
    y = labels(10, 60)
    with caplog.at_level(logging.WARNING):
        parts = partition("dir_class", y, 10, classes=10, rng=np.random.default_rng(0), omega=0.3, min_size=59)
    assert min(map(len, parts)) >= 59 and sorted(np.concatenate(parts)) == list(range(len(y)))
    assert "no draw gives every client 59 samples, " in caplog.text


def test_a_table_is_completed_from_the_classes_of_who_has_too_few() -> None:
    """By hand: client 2 has 1 of 4. Of its class 1 the most are with client 1, which needs 4 of its 5 itself and gives
    1; then with client 0, which gives the 2 that it has. Of class 0 nobody has to give where they suffice."""
    table = np.array([[9, 2, 0], [0, 5, 0], [0, 1, 0], [6, 0, 3]])
    assert completed(table, 4, own_only=True).tolist() == [[9, 0, 0], [0, 4, 0], [0, 4, 0], [6, 0, 3]]  # type: ignore[union-attr]
    # A minimum of 5: nothing of client 1, 2 of client 0, and then 2 of class 0, of which there are most: of client 0.
    assert completed(table, 5, own_only=False).tolist() == [[7, 0, 0], [0, 5, 0], [2, 3, 0], [6, 0, 3]]  # type: ignore[union-attr]
    assert completed(table, 5, own_only=True) is None
    assert table.sum() == 26, "the table that was given stays"


@pytest.mark.parametrize(("clients", "least"), [(700, 10), (10_000, 5)])
def test_thousands_of_clients_have_their_minimum(clients: int, least: int) -> None:
    y = labels(10, 6000)
    parts = partition("dir_class", y, clients, classes=10, rng=np.random.default_rng(0), omega=0.1, min_size=least)
    assert min(map(len, parts)) >= least and len(np.unique(np.concatenate(parts))) == len(y)
    few = [len(np.unique(y[part])) for part in parts]
    assert np.mean(few) < 4, "the clients' classes are still few"


def test_the_more_clients_the_fewer_tables_are_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def noting(task: Task, rng: np.random.Generator) -> np.ndarray:
        calls.append(1)
        counts = np.zeros((task.clients, len(task.sizes)), dtype=np.int64)
        counts[0] = task.sizes
        return counts

    monkeypatch.setitem(RECIPES, "dir_class", noting)
    for classes, clients, tables in ((10, 400, 2500), (3, 400, 2500), (40, 400, 625), (40, 100, 10_000)):
        calls.clear()
        partition("dir_class", labels(classes, 6000 // classes), clients, classes=classes, rng=np.random.default_rng(0))
        assert len(calls) == tables


def test_a_table_is_drawn_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same generator state gives the same samples and is left in the same state, without drawing the table again;
    another state, and another minimum, are drawn."""
    drawn: list[int] = []

    def noting(task: Task, rng: np.random.Generator) -> np.ndarray:
        drawn.append(1)
        return dir_class(task, rng)

    monkeypatch.setitem(RECIPES, "dir_class", noting)
    first, again = np.random.default_rng(5), np.random.default_rng(5)
    dealt = [partition("dir_class", labels(), 10, classes=10, rng=rng, omega=1.0) for rng in (first, again)]
    once = len(drawn)
    assert once > 0 and all(np.array_equal(*parts) for parts in zip(*dealt, strict=True))
    assert first.bit_generator.state == again.bit_generator.state
    monkeypatch.setitem(RECIPES, "dir_class", dir_class)
    fresh = partition("dir_class", labels(), 10, classes=10, rng=np.random.default_rng(5), omega=1.0)
    assert all(np.array_equal(*parts) for parts in zip(fresh, dealt[0], strict=True))
    monkeypatch.setitem(RECIPES, "dir_class", noting)
    partition("dir_class", labels(), 10, classes=10, rng=np.random.default_rng(5), omega=1.0)
    assert len(drawn) == once
    partition("dir_class", labels(), 10, classes=10, rng=np.random.default_rng(6), omega=1.0)
    assert len(drawn) > once


def test_ten_thousand_draws_then_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    monkeypatch.setitem(RECIPES, "dir_class", lambda task, rng: calls.append(1))
    with pytest.raises(
        UserError,
        match=re.escape("clients must be few enough for each to hold at least 10 of the 600 training samples, got 10"),
    ):
        partition("dir_class", labels(10, 60), 10, classes=10, rng=np.random.default_rng(0), omega=0.1)
    assert len(calls) == 10_000


@pytest.mark.parametrize("recipe", sorted({*RECIPE_NAMES} - {"pathological"}))
def test_more_clients_than_samples_for_them_are_refused_with_what_would_do(recipe: str) -> None:
    with pytest.raises(UserError, match=r"clients must be at most (2|10), for each .* a min_samples of at most 1"):
        partition(recipe, labels(2, 10), 11, classes=2, rng=np.random.default_rng(0), omega=1.0)


def test_user_errors() -> None:
    rng = np.random.default_rng(0)
    with pytest.raises(UserError, match=re.escape("Unknown partition 'dir_clas'. Did you mean 'dir_class'?")):
        partition("dir_clas", labels(), 10, classes=10, rng=rng)
    with pytest.raises(
        UserError, match=re.escape("classes_per_client must be in [1, 10], the number of classes, got 11")
    ):
        partition("pathological", labels(), 10, classes=10, rng=rng, classes_per_client=11)
    with pytest.raises(UserError, match=re.escape(f"classes_per_client must be at least {math.ceil(10 / 4)}, got 2")):
        partition("pathological", labels(), 4, classes=10, rng=rng, classes_per_client=2)
