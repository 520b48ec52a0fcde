"""How the training data is dealt to the clients.

| recipe         | of       | what it does                                                                          |
|----------------|----------|---------------------------------------------------------------------------------------|
| `iid`          | -        | equal shares, drawn uniformly                                                         |
| `dir_class`    | DFRD     | every class is split over the clients by Dir(ω·1_N); full clients get nothing more    |
| `dir_client`   | FedMD-CG | every client draws its label distribution from Dir(ω·1_C); equal client sizes         |
| `dir_dominant` | FedKF    | Dir(ω·1) per class, redrawn until the clients take turns in holding the largest share |
| `dir_pfl`      | DHF      | `dir_class` with a minimum of 40, or half of n/N; meant for train and test data merged |
| `pathological` | DHF      | every client sees k classes, in unequal shares                                        |
| `natural`      | -        | clients exist already: a column of the data says whose sample each is                 |

A recipe decides only how many samples of each class every client gets, a table of counts `(N, C)`; which ones they are
is a uniform draw that all recipes share. Every sample goes to exactly one client.

Size guard: a table in which a client has fewer than `min_size` samples is drawn again, at most 10 000 times; of more
than 100 clients less often, so that the time grows with the number of samples and no faster; of `dir_dominant` not the
table of so many is drawn again, but the blocks of it in which a client has fewer. Then the table that misses least is
completed (with a warning in the log): a client that has too few gets samples of its own classes, and where these do not
suffice of others (in `pathological` never), from the clients that hold most of them.
"""

from __future__ import annotations

import dataclasses
import logging
import math
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import EntryPoint
from typing import Any

import numpy as np
from numpy.typing import NDArray

from search_spaces import plugins
from search_spaces.errors import Shown, UserError, sentence, unknown

#: No recipe, as nothing is drawn: see `natural`.
NATURAL = "natural"
DRAWS = 10_000
#: Tables of so many entries together are drawn at most, where that is fewer than `DRAWS` tables; what has fewer than
#: `USUAL` classes counts as if it had these.
ENTRIES, USUAL = 10_000_000, 10
#: Of so many clients `DRAWS` tables are drawn whatever the classes; `dir_client` draws a key for every sample that is
#: left, and of more clients waiting times: the distribution is the same, the time of the former grows with clients
#: times samples; and `dir_dominant` draws whole tables again, of more clients the blocks that do not pass.
FEW = 100
#: Blocks of so many rows together `dir_dominant` draws again at most.
ROWS_AGAIN = 100_000
#: What dir_pfl asks of a client at least, however many there are.
FEWEST = 2
#: So many tables are remembered.
REMEMBERED = 64
#: B / (1 − 0.75) for DHF's batch of 10: every client can fill a test batch from its quarter (PFLlib).
PFL_MINIMUM = 40

Counts = NDArray[np.int64]
logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Task:
    """What a recipe is given. `sizes` `(C,)` are the samples per class."""

    sizes: Counts
    clients: int
    omega: float
    classes_per_client: int

    @property
    def total(self) -> int:
        """n, the number of samples."""
        return int(self.sizes.sum())

    def equal_shares(self) -> Counts:
        """`(N,)`: n/N rounded down, the first clients get one more where it does not divide."""
        shares = np.full(self.clients, self.total // self.clients)
        shares[: self.total % self.clients] += 1
        return shares


Recipe = Callable[[Task, np.random.Generator], Counts | None]


def partition(
    recipe: str,
    labels: NDArray[np.integer],
    clients: int,
    *,
    classes: int,
    rng: np.random.Generator,
    omega: float = 1.0,
    classes_per_client: int = 2,
    min_size: int = 10,
) -> list[NDArray[np.int64]]:
    """The indices into `labels` `(n,)` that each client holds, shuffled; disjoint, together all of 0 … n−1.

    The same generator state gives the same partition. `omega` is used by the Dirichlet recipes, `classes_per_client`
    by `pathological`. Raises `UserError` for an unknown recipe, and where not every client can have `min_size`."""
    if recipe not in RECIPES:
        raise UserError(unknown("partition", recipe, RECIPES))
    labels = np.asarray(labels)
    task = Task(np.bincount(labels, minlength=classes), clients, omega, classes_per_client)
    if recipe == "pathological":
        _check_pathological(task)
    min_size = least(recipe, min_size)
    if recipe == "dir_pfl":
        min_size = max(min_size, min(PFL_MINIMUM, task.total // clients // 2))
    return _deal(_draw(recipe, task, min_size, rng), labels, rng)


def least(recipe: str, min_size: int) -> int:
    """How many samples a client must have for there to be a partition of that recipe; so many for each do, but in
    `pathological`, where they must be of its own classes."""
    return max(min_size, FEWEST) if recipe == "dir_pfl" else min_size


def natural(owner: NDArray[np.integer], clients: int) -> list[NDArray[np.int64]]:
    """The places in `owner` `(n,)` at which each client stands."""
    return [np.flatnonzero(owner == client) for client in range(clients)]


def _draw(recipe: str, task: Task, min_size: int, rng: np.random.Generator) -> Counts:
    """A table of the recipe that passes the size guard; it and what it leaves of the generator are remembered, as
    thousands of draws take many seconds and the trials of a search have the same few federations."""
    state = repr(rng.bit_generator.state)
    asked = (
        RECIPES[recipe],
        task.sizes.tobytes(),
        *(task.clients, task.omega, task.classes_per_client),
        min_size,
        state,
    )
    if asked not in _drawn:
        counts, completed = _allowed(recipe, task, min_size, rng)
        counts.flags.writeable = False
        if len(_drawn) >= REMEMBERED:
            _drawn.pop(next(iter(_drawn)))
        _drawn[asked] = counts, completed, rng.bit_generator.state
    counts, completed, rng.bit_generator.state = _drawn[asked]
    if completed:
        logger.warning(
            "partition %s (omega %g, %d clients): no draw gives every client %d samples, %d clients got the rest from "
            "others",
            *(recipe, task.omega, task.clients, min_size, completed),
        )
    return counts


#: The table, how many of its clients were given more, and the generator's state after it, by all that they depend on.
_drawn: dict[tuple[Any, ...], tuple[Counts, int, Any]] = {}


def _allowed(recipe: str, task: Task, minimum: int, rng: np.random.Generator) -> tuple[Counts, int]:
    """The first table drawn that passes the size guard; or that which misses least, completed, and how many of its
    clients missed something."""
    where = f"partition {recipe}, omega {task.omega:g}"
    is_pathological, are_too_few = recipe == "pathological", task.total < minimum * task.clients
    if are_too_few and not is_pathological:
        raise UserError(
            sentence(
                "clients",
                f"at most {task.total // minimum}, for each to hold at least {minimum} of the {task.total} training "
                "samples",
                task.clients,
                where,
                f"Use fewer clients, or a min_samples of at most {task.total // task.clients}.",
            )
        )
    least_shares = _least_shares(task, minimum) if is_pathological else None
    if is_pathological and least_shares is None and (are_too_few or _are_consecutive(task)):
        raise UserError(_pathological_would_do(task, minimum))
    is_by_block = recipe == "dir_dominant" and task.clients > FEW
    best = _block_by_block(task, minimum, rng) if is_by_block else _first_or_best(RECIPES[recipe], task, minimum, rng)
    if best is not None and _missing(best, minimum) == 0:
        return best, 0
    found = None if best is None else completed(best, minimum, own_only=is_pathological)
    if best is not None and found is None and least_shares is not None:
        found = _filled(best, least_shares)
    if is_pathological and found is None:
        raise UserError(_pathological_would_do(task, minimum))
    if best is None or found is None:
        raise UserError(
            sentence(
                "clients",
                f"few enough for each to hold at least {minimum} of the {task.total} training samples",
                task.clients,
                where,
                "Use fewer clients, a smaller min_samples, a larger omega or another partition.",
            )
        )
    return found, int((best.sum(axis=1) < minimum).sum())


def _missing(counts: Counts, minimum: int) -> Counts:
    """How many samples the clients of each table `(…, N, C)` lack together, `(…)`."""
    lacking: Counts = np.maximum(minimum - counts.sum(axis=-1), 0).sum(axis=-1)
    return lacking


def _first_or_best(draw: Recipe, task: Task, minimum: int, rng: np.random.Generator) -> Counts | None:
    """The first table drawn in which every client has the minimum, or of all that are drawn the one that misses least;
    None where the recipe gave none."""
    best, least = None, task.total
    entries = task.clients * max(len(task.sizes), USUAL)
    for _ in range(DRAWS if task.clients <= FEW else max(1, min(DRAWS, ENTRIES // entries))):
        counts = draw(task, rng)
        if counts is None:
            continue
        missing = int(_missing(counts, minimum))
        if missing == 0:
            return counts
        if missing < least:
            best, least = counts, missing
    return best


def completed(counts: Counts, minimum: int, *, own_only: bool) -> Counts | None:
    """The same table with at least `minimum` samples for every client. One that has fewer gets samples of the classes
    that it holds, of the one that it holds most of first; then, unless `own_only`, of the others. They come from the
    client that holds most of the class, then from the next one; nobody gives what it needs for its own minimum. None
    where that is not possible."""
    counts = counts.copy()
    spare = counts.sum(axis=1) - minimum
    givers = np.argsort(-counts, axis=0, kind="stable")
    #: By class, the first of its givers that may have something left: what they have only becomes less.
    first = np.zeros(counts.shape[1], dtype=np.int64)
    for client in np.flatnonzero(spare < 0):
        own = counts[client].copy()
        for label in np.lexsort((-counts.sum(axis=0), -own)):
            if own_only and own[label] == 0:
                break
            while spare[client] < 0 and first[label] < len(counts):
                giver = givers[first[label], label]
                given = min(-spare[client], spare[giver], counts[giver, label])
                if given <= 0:
                    first[label] += 1
                    continue
                counts[giver, label] -= given
                counts[client, label] += given
                spare[giver] -= given
                spare[client] += given
        if spare[client] < 0:
            return None
    return counts


def _deal(counts: Counts, labels: NDArray[np.integer], rng: np.random.Generator) -> list[NDArray[np.int64]]:
    """Which samples: each class is shuffled and cut at the table's counts, then every client's samples are shuffled."""
    dealt = np.concatenate([rng.permutation(np.flatnonzero(labels == label)) for label in range(counts.shape[1])])
    owner = np.concatenate([np.repeat(np.arange(len(counts)), of_class) for of_class in counts.T])
    held = np.split(dealt[np.argsort(owner, kind="stable")], np.cumsum(counts.sum(axis=1))[:-1])
    return [rng.permutation(part) for part in held]


def iid(task: Task, rng: np.random.Generator) -> Counts:
    """Equal shares of a uniform shuffle: the classes of a share are a hypergeometric draw."""
    left, rows = task.sizes.copy(), []
    for share in task.equal_shares():
        rows.append(rng.multivariate_hypergeometric(left, int(share)))
        left = left - rows[-1]
    return np.stack(rows)


def dir_class(task: Task, rng: np.random.Generator) -> Counts | None:
    """DFRD. For every class: shares ~ Dir(ω·1_N); zero for clients that already hold n/N or more; renormalise; cut the
    class at the cumulated shares, rounded down. None where the remaining shares are all zero in double precision."""
    counts = np.zeros((task.clients, len(task.sizes)), dtype=np.int64)
    held = np.zeros(task.clients, dtype=np.int64)
    drawn = rng.dirichlet(np.full(task.clients, task.omega), size=len(task.sizes))
    for label, size in enumerate(task.sizes):
        shares = drawn[label] * (held < task.total / task.clients)
        weight = shares.sum()
        if not weight > 0:
            return None
        cuts = (np.cumsum(shares / weight) * size).astype(np.int64)
        cuts[-1] = size
        counts[:, label] = np.diff(cuts, prepend=0)
        held += counts[:, label]
    return counts


def dir_client(task: Task, rng: np.random.Generator) -> Counts:
    """FedMD-CG. Client after client: label distribution ~ Dir(ω·1_C), then its equal share is drawn from the pool
    without replacement, every sample weighted by its class. Where the classes of positive weight hold less than the
    share, all of them are taken and the rest comes uniformly from the other classes, so that sizes stay equal."""
    left, rows = task.sizes.copy(), []
    for share in task.equal_shares():
        shares = rng.dirichlet(np.full(len(left), task.omega))
        row = _at_once(left, shares, share, rng) if task.clients <= FEW else _by_waiting_times(left, shares, share, rng)
        rows.append(row)
        left = left - row
    return np.stack(rows)


def _at_once(left: Counts, shares: NDArray[np.float64], count: int, rng: np.random.Generator) -> Counts:
    """How many of each class a weighted draw of `count` samples without replacement takes, by a key for every sample
    that is left: its time grows with these."""
    with np.errstate(divide="ignore"):
        weight = np.log(shares)
    pool = np.repeat(np.arange(len(left)), left)
    # The largest log-weight + Gumbel noise first is a weighted draw without replacement (Efraimidis and Spirakis).
    key = weight[pool] + rng.gumbel(size=len(pool))
    order = np.lexsort((rng.random(len(pool)), -key))
    return np.bincount(pool[order[:count]], minlength=len(left))


def _by_waiting_times(left: Counts, shares: NDArray[np.float64], count: int, rng: np.random.Generator) -> Counts:
    """The same distribution, in a time that grows with `count`: the samples of a class wait exponentially, at the rate
    of its share, and those that wait least are taken. The k-th of n has waited Σ_{j<k} E_j / (n - j) over the share,
    with E_j of mean 1. What then is missing comes uniformly from the classes without a share."""
    if count == 0:
        return np.zeros_like(left)
    place = np.arange(count)
    waits = rng.standard_exponential((len(left), count)) / np.maximum(left[:, None] - place, 1)
    with np.errstate(divide="ignore"):  # logarithms, as shares may be as small as numbers are
        key = np.log(waits.cumsum(axis=1)) - np.log(shares)[:, None]
    key[place >= left[:, None]] = np.inf
    first = np.argpartition(key, count - 1, axis=None)[:count]
    taken = np.bincount(first[np.isfinite(key.flat[first])] // count, minlength=len(left))
    return taken + rng.multivariate_hypergeometric(left - taken, count - int(taken.sum()))


def dir_dominant(task: Task, rng: np.random.Generator) -> Counts:
    """FedKF. Clients in blocks of at most C; every class is split over the blocks in proportion to their clients. In a
    block, shares ~ Dir(ω·1) per class, redrawn until the largest falls to a client that has not been largest in the
    current cycle; a cycle ends when all have been. What rounding down leaves over goes to a random block or client."""
    blocks = [_in_blocks(members, sizes, task.omega, rng) for members, sizes in _blocks(task, rng)]
    return np.concatenate([drawn.reshape(-1, len(task.sizes)) for drawn in blocks])


def _blocks(task: Task, rng: np.random.Generator) -> list[tuple[int, Counts]]:
    """The blocks of `dir_dominant`: those of C clients, then the one of fewer where N does not divide; how many members
    each of them has, and the samples of each class for every block, `(B, C)`."""
    classes = len(task.sizes)
    blocks = [min(classes, task.clients - start) for start in range(0, task.clients, classes)]
    per_block = np.stack([_rounded(np.array(blocks) / task.clients, int(size), rng) for size in task.sizes], axis=1)
    whole = len(blocks) - (blocks[-1] < classes)
    return [(classes, per_block[:whole]), (blocks[-1], per_block[whole:])]


def _in_blocks(members: int, sizes: Counts, omega: float, rng: np.random.Generator) -> Counts:
    """Tables of blocks of `dir_dominant` that have so many members, `(B, members, C)`, by their `sizes` `(B, C)`."""
    shares, places = _in_turn(members, sizes.shape, omega, rng)
    # The rounding of `_rounded` for all classes of all blocks at once: a table is drawn thousands of times.
    counts = (shares * sizes[:, :, None]).astype(np.int64)
    block, label = np.indices(sizes.shape)
    counts[block, label, places] += sizes - counts.sum(axis=2)
    return counts.transpose(0, 2, 1)


def _block_by_block(task: Task, minimum: int, rng: np.random.Generator) -> Counts:
    """A table of `dir_dominant` of which each block is drawn until every client of it has the minimum, or `ROWS_AGAIN`
    rows have been drawn again; what then does not pass is the draw of its block that misses least.

    Once it is known how many samples each block has, blocks do not depend on one another. So what passes has the
    distribution of a whole table that passes, and the time does not grow with how rare such tables are."""
    tables = []
    for members, sizes in _blocks(task, rng):
        held, left = _in_blocks(members, sizes, task.omega, rng), ROWS_AGAIN
        missing = _missing(held, minimum)
        while left > 0 and len(poor := np.flatnonzero(missing)):
            again = _in_blocks(members, sizes[poor], task.omega, rng)
            less = _missing(again, minimum)
            better = less < missing[poor]
            held[poor[better]], missing[poor[better]] = again[better], less[better]
            left -= len(poor) * members
        tables.append(held.reshape(-1, len(task.sizes)))
    return np.concatenate(tables)


def _in_turn(
    members: int, shape: tuple[int, ...], omega: float, rng: np.random.Generator
) -> tuple[NDArray[np.float64], Counts]:
    """Blocks of `dir_dominant` with so many members: for a `shape` of (blocks, C), the shares of each class
    `(blocks, C, members)`, and who gets what rounding leaves over `(blocks, C)`.

    From ω = 0.1 on, numpy's Dirichlet draw is gamma draws divided by their sum. Drawing the gammas alone yields the
    same shares bit for bit in a fifth of the time, as most draws are thrown away."""
    shares, places = np.empty((*shape, members)), np.empty(shape, dtype=np.int64)
    concentration, by_gamma = np.full(members, omega), omega >= 0.1
    gamma, integers = rng.standard_gamma if by_gamma else None, rng.integers
    for of_block, place in zip(shares, places, strict=True):
        had_turn = set[int]()
        for label, drawn in enumerate(of_block):
            while True:
                if gamma is not None:
                    gamma(omega, out=drawn)
                else:
                    drawn[:] = rng.dirichlet(concentration)
                if (largest := int(drawn.argmax())) not in had_turn:
                    break
            had_turn.add(largest)
            if len(had_turn) == members:
                had_turn.clear()
            place[label] = integers(members)
    # Added up from left to right and multiplied by the inverse, as numpy does.
    return (shares * (1.0 / shares.cumsum(axis=2)[:, :, -1:]) if by_gamma else shares), places


def _rounded(shares: NDArray[np.float64], size: int, rng: np.random.Generator) -> Counts:
    """`shares · size` rounded down; the rest goes to one random place."""
    counts = (shares * size).astype(np.int64)
    counts[rng.integers(len(counts))] += size - counts.sum()
    return counts


def pathological(task: Task, rng: np.random.Generator) -> Counts:
    """DHF (PFLlib). Class after class goes to the first ceil(N/C·k) clients that still need classes; all but the last
    of them get a uniform draw from [s/10, s), s an equal share of the class, and the last gets what remains.

    Where C/k or N·k/C is not whole, late clients may see fewer than k classes; a class always keeps at least one
    client."""
    counts = np.zeros((task.clients, len(task.sizes)), dtype=np.int64)
    for label, (size, takers) in enumerate(zip(task.sizes, _takers(task), strict=True)):
        share = size / len(takers)
        low = int(share / 10)
        given = rng.integers(low, max(int(share), low + 1), size=len(takers) - 1)
        counts[takers, label] = [*given, size - given.sum()]
    return counts


def _takers(task: Task) -> list[Counts]:
    """The clients that hold each class in `pathological`, which no draw decides."""
    classes, found = len(task.sizes), []
    need = np.full(task.clients, task.classes_per_client)
    for label in range(classes):
        spare = int(need.sum()) - (classes - label - 1)
        several = min(math.ceil(task.clients * task.classes_per_client / classes), spare)
        found.append(np.flatnonzero(need)[:several])
        need[found[-1]] -= 1
    return found


def _first_and_last(task: Task) -> tuple[Counts, Counts, Counts]:
    """Of every client of `pathological` its first class, its last class, and how many it holds."""
    first, last, held = np.full(task.clients, -1), np.full(task.clients, -1), np.zeros(task.clients, dtype=np.int64)
    for label, takers in enumerate(_takers(task)):
        first[takers] = np.where(held[takers] == 0, label, first[takers])
        last[takers] = label
        held[takers] += 1
    return first, last, held


def _are_consecutive(task: Task) -> bool:
    """Whether each client of `pathological` holds one class after the other; where it does, `_least_shares` finds a
    table wherever there is one."""
    first, last, held = _first_and_last(task)
    return bool((last - first + 1 == held).all())


def _least_shares(task: Task, minimum: int) -> Counts | None:
    """A table in which every client of `pathological` has `minimum` samples of its classes and the rest is nobody's;
    None where none was found. Class after class goes first to those to whom no later one is left (earliest deadline
    first)."""
    counts = np.zeros((task.clients, len(task.sizes)), dtype=np.int64)
    need, last = np.full(task.clients, minimum), _first_and_last(task)[1]
    for label, (size, takers) in enumerate(zip(task.sizes, _takers(task), strict=True)):
        takers = takers[np.argsort(last[takers], kind="stable")]
        asked = need[takers]
        counts[takers, label] = np.clip(size - (np.cumsum(asked) - asked), 0, asked)
        need[takers] -= counts[takers, label]
    return None if need.any() else counts


def _filled(drawn: Counts, least: Counts) -> Counts:
    """The table `least` with what is left of each class added as it was `drawn`, rounded; the last sample goes where
    most of the class was."""
    counts = least.copy()
    for label, of_class in enumerate(drawn.T):
        size = int(of_class.sum())
        left = size - int(least[:, label].sum())
        added = of_class * left // max(size, 1)
        added[int(of_class.argmax())] += left - int(added.sum())
        counts[:, label] += added
    return counts


def _pathological_would_do(task: Task, minimum: int) -> str:
    """That `pathological` cannot give every client so many samples, and how many clients, and which minimum, it can."""

    def most(low: int, high: int, possible: Callable[[int], bool]) -> int:
        """The largest number in [low, high] that is possible, where all below it are; `low` where none is."""
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if possible(middle) else (low, middle - 1)
        return low

    def with_clients(clients: int) -> bool:
        other = dataclasses.replace(task, clients=clients)
        return clients * task.classes_per_client >= len(task.sizes) and _least_shares(other, minimum) is not None

    k = task.classes_per_client
    classes, enough = f"{k} class{'es' * (k > 1)}", math.ceil(len(task.sizes) / k)
    clients = most(enough, task.clients - 1, with_clients) if enough < task.clients else enough
    least = most(0, minimum - 1, lambda value: _least_shares(task, value) is not None)
    fixes = [f"{clients} clients"] * with_clients(clients) + [f"a min_samples of at most {least}"] * (least > 0)
    if task.total >= minimum * task.clients:
        fixes += ["a larger classes_per_client", "another partition"]
    return sentence(
        "clients",
        f"few enough for each to hold at least {minimum} of the {task.total} training samples, of {classes} alone",
        task.clients,
        "partition pathological",
        f"Use {' or '.join(filter(None, (', '.join(fixes[:-1]), *fixes[-1:])))}." if fixes else "",
    )


def _check_pathological(task: Task) -> None:
    classes, k = len(task.sizes), task.classes_per_client
    if not 1 <= k <= classes:
        raise UserError(
            sentence("classes_per_client", f"in [1, {classes}], the number of classes", k, "partition pathological")
        )
    if task.clients * k < classes:
        raise UserError(
            sentence(
                "classes_per_client",
                f"at least {math.ceil(classes / task.clients)}",
                k,
                f"partition pathological, {task.clients} clients",
                "Otherwise some classes would have no client.",
            )
        )


RECIPES: dict[str, Recipe] = {
    "iid": iid,
    "pathological": pathological,
    "dir_class": dir_class,
    "dir_client": dir_client,
    "dir_dominant": dir_dominant,
    "dir_pfl": dir_class,
}


def _of_plugin(point: EntryPoint) -> Recipe:
    """The recipe of a plug-in, which is loaded when it is first used. Raises `UserError` where it gives no table."""

    def recipe(task: Task, rng: np.random.Generator) -> Counts | None:
        counts = plugins.load(point)(task, rng)
        if counts is None:
            return None
        table = np.asarray(counts)
        right = table.shape == (task.clients, len(task.sizes)) and table.dtype.kind in "iu"
        if not right or bool((table < 0).any()) or bool((table.sum(axis=0) != task.sizes).any()):
            must = "a table (clients, classes) of whole numbers whose columns add up to the samples of each class"
            got = f"shape {table.shape}, columns adding up to {table.sum(axis=0).tolist()}"
            raise UserError(sentence(f"The partition {point.name}", must, Shown(got), point.value))
        return table.astype(np.int64)

    return recipe


RECIPES.update(
    {name: _of_plugin(point) for name, point in plugins.plugins(plugins.PARTITIONS).items() if name not in RECIPES}
)
