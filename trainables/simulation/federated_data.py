"""Who holds which samples: validation is set aside first, then the partition, then each client's share of the test set.

Everything here is drawn from streams of the run's seed, or of `partition_seed` where it is given, that name no
hyper-parameter of training, so every configuration of a search gets the same split for seed k.
"""

from __future__ import annotations

import hashlib
import itertools
import warnings
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from search_spaces.errors import EnvironmentFault, UserError, sentence
from trainables import data, models
from trainables.data.partition import NATURAL, least, natural, partition
from trainables.federation import ClientData, Federation, FederationConfig, Images, budgets, normalise
from trainables.models import precision
from trainables.rng import Rng

Indices = np.ndarray
#: The partition that deals training and test data together to the clients.
_DEALS_TEST = "dir_pfl"
#: What has been moved to a device, by the data set's hash and the device.
_MOVED: dict[tuple[str, str], Images] = {}


@dataclass(frozen=True)
class Part:
    """Samples to measure on: positions in the shared images, and each client's share of them (positions in
    `indices`)."""

    indices: Tensor
    y: Tensor
    shares: tuple[Tensor, ...]
    #: Each client's own samples among these, where clients keep some for measuring (client_test_fraction > 0).
    own: tuple[Tensor, ...] | None = None

    def some(self, images: int, own: int) -> Part:
        """So many of its samples, evenly spread, as data may be sorted by class, and of every client's share at most
        `own` of these."""
        whole = len(self.indices)
        count = min(images, whole)
        kept = torch.arange(count) * whole // max(count, 1)

        def cut(shares: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
            return tuple(share[:own] % count for share in shares)

        shares = cut(self.shares)
        return Part(self.indices[kept], self.y[kept], shares, None if self.own is None else cut(self.own))


@dataclass(frozen=True)
class FederatedData:
    """All samples of one simulated federation. Only the engine sees this; methods get `ClientData`."""

    images: Images
    clients: tuple[ClientData, ...]
    #: (N, C) training samples by client and class.
    counts: Tensor
    test: Part
    validation: Part | None
    mean: Tensor
    std: Tensor
    class_names: tuple[str, ...]
    #: The clients' names, where they are those of the data; empty where they are drawn.
    client_names: tuple[str, ...]
    #: Classes of the data set's own test images, the last ones of `images`, where anybody may be shown these; None for
    #: the user's own data, and where they are dealt to the clients.
    public_test_y: Tensor | None
    #: Names the content of the data set.
    dataset_hash: str
    #: Names the content of the data set and which client holds which samples of it.
    fingerprint: str

    def batch(self, part: Part, chosen: Tensor) -> Tensor:
        """Normalised images of `part` at positions `chosen`."""
        return normalise(self.images[part.indices[chosen]].to(self.mean.device), self.mean, self.std)


def build(
    config: FederationConfig, seed: int, device: torch.device, data_dir: str | None = None
) -> tuple[Federation, FederatedData]:
    """The federation of one seed and its data. Raises `UserError` where the settings cannot be met, and of these an
    `EnvironmentFault` where the data cannot be had."""
    precision.check(config.precision, device)
    try:
        source = data.load(config.dataset, data_dir)
    except UserError as error:
        raise EnvironmentFault(*error.problems) from error
    check(config, source)
    rng = Rng(seed if config.partition_seed < 0 else config.partition_seed)
    labels = np.concatenate([np.asarray(source.train_y), np.asarray(source.test_y)])
    split = _split(config, source, labels, rng)
    all_labels = torch.from_numpy(labels.astype(np.int64))
    mean, std = (torch.tensor(v, dtype=torch.float32, device=device) for v in (source.mean, source.std))
    images = _images(source, device)
    clients = tuple(
        ClientData(i, images, positions, all_labels[positions], source.classes, mean, std, device)
        for i, positions in enumerate(torch.from_numpy(np.sort(part)) for part in split.clients)
    )

    def measured(indices: Indices, name: str, own: tuple[Tensor, ...] | None) -> Part:
        positions = torch.from_numpy(indices)
        shares = even_shares(labels[indices], config.clients, rng.numpy("shares", name))
        return Part(positions, all_labels[positions], shares, own)

    federated = FederatedData(
        images,
        clients,
        torch.stack([c.label_counts() for c in clients]),
        measured(split.test, "test", split.own_test),
        measured(split.validation, "validation", split.own_validation) if len(split.validation) else None,
        mean,
        std,
        tuple(source.class_names),
        tuple(source.owners) if config.partition == NATURAL else (),
        all_labels[len(source.train_y) :] if _has_public_test(config) else None,
        source.hash,
        _fingerprint(source.hash, split.clients),
    )
    return _federation(config, seed, device, source, tuple(len(c) for c in clients)), federated


def _federation(
    config: FederationConfig, seed: int, device: torch.device, source: data.Dataset, sizes: tuple[int, ...]
) -> Federation:
    """The public knowledge of a federation whose clients hold so many samples each."""
    return Federation(
        seed=seed,
        clients=config.clients,
        sizes=sizes,
        classes=source.classes,
        shape=source.shape,
        mean=tuple(source.mean),
        std=tuple(source.std),
        model=resolve_model(config.model, source.shape, source.kind),
        widths=budgets(config.clients, config.rho, config.sigma),
        rounds=config.rounds,
        active=config.active_clients or config.clients,
        device=device,
        precision=config.precision,
        batch_norm=config.batch_norm,
        kind=source.kind,
        offset=source.offset,
        scale=source.scale,
        vocabulary=source.vocabulary,
    )


def _has_public_test(config: FederationConfig) -> bool:
    """Whether the data set's own test images are public, as those of a data set known by name are, and no client's."""
    return config.dataset in data.names() and config.partition != _DEALS_TEST


@dataclass(frozen=True)
class _Split:
    """Positions in the shared images: of each client's training samples, of the test set and of the validation share.

    `own_test` and `own_validation`: each client's own samples among those, where clients keep some."""

    clients: list[Indices]
    test: Indices
    validation: Indices
    own_test: tuple[Tensor, ...] | None = None
    own_validation: tuple[Tensor, ...] | None = None


def _split(config: FederationConfig, source: data.Dataset, labels: np.ndarray, rng: Rng) -> _Split:
    """Who holds what. `labels` are those of the training and the test set in one array."""
    # With a share of each client's own samples to test on, measured samples are taken inside each client.
    inside = config.client_test_fraction > 0
    train_y = np.asarray(source.train_y)
    if config.partition == NATURAL:
        return _natural(config, source, train_y, len(labels), rng)
    test = np.arange(len(train_y), len(labels))
    train, validation = stratified_cut(train_y, 0.0 if inside else config.validation_fraction, rng.numpy("validation"))
    if config.partition == _DEALS_TEST:
        train, test = np.concatenate([train, test]), test[:0]
    dealt = partition(
        config.partition,
        labels[train],
        config.clients,
        classes=source.classes,
        rng=rng.numpy("partition"),
        omega=config.omega,
        classes_per_client=config.classes_per_client,
        min_size=config.min_samples,
    )
    parts = [train[part] for part in dealt]
    if not inside:
        return _Split(parts, test, validation)
    parts, test, own_test = _hold_out(parts, config.client_test_fraction, rng.child("client_test"))
    parts, validation, own_validation = _hold_out(parts, config.validation_fraction, rng.child("client_validation"))
    return _Split(parts, test, validation, own_test, own_validation)


def _natural(config: FederationConfig, source: data.Dataset, train_y: np.ndarray, samples: int, rng: Rng) -> _Split:
    """The clients of the data: each one's samples, of which a share of every class is for validation and, with
    `client_test_fraction`, for testing. Otherwise its test samples are those of the data's test part."""
    train_owner, test_owner = np.asarray(source.train_owner), np.asarray(source.test_owner)
    if config.client_test_fraction > 0:
        # Also those of the test part are dealt anew: all of a client's samples are its own.
        owner = np.concatenate([train_owner, test_owner])
        parts = natural(owner, config.clients)
        parts, test, own_test = _hold_out(parts, config.client_test_fraction, rng.child("client_test"))
    else:
        parts, test = natural(train_owner, config.clients), np.arange(len(train_y), samples)
        own_test = tuple(torch.from_numpy(places) for places in natural(test_owner, config.clients))
    parts, validation, own_validation = _hold_out(parts, config.validation_fraction, rng.child("client_validation"))
    return _Split(parts, test, validation, own_test, own_validation)


def _images(source: data.Dataset, device: torch.device) -> Images:
    """The data set's images on `device`; a GPU holds one data set, once, for all seeds and trials of the process."""
    key = (source.hash, str(device))
    if key in _MOVED:
        return _MOVED[key]
    with warnings.catch_warnings():  # the maps are read-only; nothing here writes to them
        warnings.filterwarnings("ignore", message=".*not writable.*")
        train, test = (torch.from_numpy(np.asarray(x)).to(device) for x in (source.train_x, source.test_x))
        images = Images(train, test, source.hash)
    if device.type != "cpu":
        _MOVED.clear()
        _MOVED[key] = images
    return images


def check(config: FederationConfig, source: data.Dataset) -> None:
    """Raises one `UserError` with everything about the federation that its data set cannot meet."""
    problems = []
    if config.active_clients > config.clients:
        problems.append(
            sentence("active_clients", f"at most the number of clients, {config.clients}", config.active_clients)
        )
    if config.eval_test == "end" and config.validation_fraction == 0:
        problems.append(
            sentence(
                "eval_test",
                "every where validation_fraction is 0, as nothing else is measured before the last round",
                config.eval_test,
            )
        )
    if config.partition == "pathological" and config.classes_per_client > source.classes:
        problems.append(
            sentence(
                "classes_per_client", f"at most the data set's {source.classes} classes", config.classes_per_client
            )
        )
    if config.partition == _DEALS_TEST and config.client_test_fraction == 0:
        problems.append(
            sentence(
                "client_test_fraction",
                "above 0 for the dir_pfl partition, which deals the test set out to the clients",
                config.client_test_fraction,
                fix="The paper keeps 0.25.",
            )
        )
    if config.partition == NATURAL:
        problems += _natural_problems(config, source)
        if problems:
            raise UserError(*problems)
        return
    largest = int(np.bincount(np.asarray(source.train_y)).max())
    if (
        config.validation_fraction > 0
        and config.client_test_fraction == 0
        and round(config.validation_fraction * largest) == 0
    ):
        problems.append(
            sentence(
                "validation_fraction",
                f"large enough to hold a sample of the largest class, which has {largest}",
                config.validation_fraction,
                fix="Raise it, or set it to 0 and select on test data, such as by --metric test_global_accuracy.",
            )
        )
    there = dealt(source, config.partition, config.validation_fraction, config.client_test_fraction)
    each = least(config.partition, config.min_samples)
    if config.clients * each > there:
        samples = "training and test samples" if config.partition == _DEALS_TEST else "training samples"
        fewer = there // config.clients
        instead = f" or --set min_samples={fewer}" if fewer >= least(config.partition, 1) else ""
        problems.append(
            sentence(
                "clients × min_samples",
                f"at most {there}, the {samples} that are dealt to clients",
                config.clients * each,
                fix=f"What would do: --set clients={there // each}{instead}.",
            )
        )
    if problems:
        raise UserError(*problems)


def dealt(source: data.Dataset, partition: str, validation_fraction: float, client_test_fraction: float) -> int:
    """How many samples a partition deals to the clients: those of training without the validation share, which is cut
    class by class; all of them where each client keeps samples of its own for measuring; in `dir_pfl` with those of the
    test set."""
    count, train_y = len(source.train_y), np.asarray(source.train_y)
    if client_test_fraction == 0:
        count -= sum(round(validation_fraction * int(size)) for size in np.bincount(train_y))
    return count + (len(source.test_y) if partition == _DEALS_TEST else 0)


def _natural_problems(config: FederationConfig, source: data.Dataset) -> list[str]:
    """What the clients of the data do not allow."""
    if not source.owners:
        fix = "Give --set client=COLUMN with --dataset, or another partition."
        must = "another one for data that do not say whose each sample is"
        return [sentence("partition", must, config.partition, source.name, fix)]
    if config.clients != len(source.owners):
        must = f"{len(source.owners)}, the clients of {source.name}, in the partition {NATURAL}"
        return [sentence("clients", must, config.clients)]
    return []


def resolve_model(name: str, shape: tuple[int, int, int], kind: str = "images") -> str:
    """The model that `auto` means on vectors, tokens, or images of that shape; every other name means itself."""
    if name == "auto" and kind != "images":
        return models.SMALL[kind]
    return ("cnn_small" if max(shape[1:]) < 28 else "cnn") if name == "auto" else name


def stratified_cut(labels: np.ndarray, fraction: float, rng: np.random.Generator) -> tuple[Indices, Indices]:
    """Splits positions into (rest, cut); the cut takes `fraction` of every class, rounded, in random order.

    The random order matters: models may normalise with batch statistics, so measured samples must not be sorted by
    class."""
    cut = [np.flatnonzero(labels == c) for c in np.unique(labels)]
    cut = [rng.permutation(c)[: round(fraction * len(c))] for c in cut]
    taken = rng.permutation(np.concatenate(cut)) if cut else np.empty(0, np.int64)
    return np.setdiff1d(np.arange(len(labels)), taken), taken


def _hold_out(parts: list[Indices], fraction: float, rng: Rng) -> tuple[list[Indices], Indices, tuple[Tensor, ...]]:
    """Takes `fraction` of every client's samples (at least one where it is above 0, never the last): what is left to
    each, all that was taken in random order, and the positions of each client's samples in it."""
    kept, held = [], []
    for client, part in enumerate(parts):
        count = min(len(part) - 1, max(1, round(fraction * len(part)))) if fraction > 0 else 0
        order = rng.numpy(client).permutation(part)
        kept.append(order[count:])
        held.append(order[:count])
    taken = np.concatenate(held)
    shuffle = rng.numpy("order").permutation(len(taken))
    place = np.empty(len(taken), np.int64)
    place[shuffle] = np.arange(len(taken))
    edges = np.cumsum([0, *map(len, held)]).tolist()
    return kept, taken[shuffle], tuple(torch.from_numpy(place[a:b]) for a, b in itertools.pairwise(edges))


def even_shares(labels: np.ndarray, clients: int, rng: np.random.Generator) -> tuple[Tensor, ...]:
    """Positions dealt evenly, class by class, to the clients: stratified shares of 1/N (DFRD's local test shares)."""
    order = (
        np.concatenate([rng.permutation(np.flatnonzero(labels == c)) for c in np.unique(labels)])
        if len(labels)
        else np.empty(0, np.int64)
    )
    return tuple(torch.from_numpy(rng.permutation(order[i::clients])) for i in range(clients))


def with_step_share(client: ClientData, step_share: float) -> ClientData:
    """The same client managing only a share of its steps."""
    return client if step_share == 1.0 else replace(client, step_share=step_share)


def _fingerprint(dataset_hash: str, parts: list[Indices]) -> str:
    digest = hashlib.blake2b(dataset_hash.encode(), digest_size=16)
    for part in parts:
        digest.update(np.sort(part).astype(np.int64).tobytes() + b"/")
    return digest.hexdigest()
