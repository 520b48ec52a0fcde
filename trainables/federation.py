"""The federation: its declared settings, what every party knows of it, and what one client holds.

`Federation` is public knowledge and carries no sample; `ClientData` is one client's own data. Both are handed to a
method's functions, which see nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar, cast

import torch
from torch import Tensor, nn

from search_spaces.parameter import choice, integer, real, text
from trainables import models
from trainables.data.partition import NATURAL, RECIPES
from trainables.kernels.recorded_steps import Recorder
from trainables.models.precision import PRECISIONS, lower
from trainables.params import take
from trainables.rng import Rng
from trainables.wire import Params

Module = TypeVar("Module", bound=nn.Module)


@dataclass(frozen=True)
class FederationConfig:
    """Data, clients, budgets and length of a simulated federation."""

    dataset: str = text(
        "digits", doc="A registered data set, a folder of images, an .npz file, a table.", condition=True
    )
    model: str = choice(
        "auto",
        ("auto", *models.names()),
        doc="Client and global model; auto takes mlp for vectors, lstm for tokens, cnn_small below 28 pixels, else "
        "cnn.",
        condition=True,
        files=True,
    )
    rounds: int = integer(10, low=1, high=100_000, log=True, symbol="T", doc="Communication rounds planned.")
    clients: int = integer(
        10,
        low=1,
        high=10_000,
        log=True,
        symbol="N",
        doc="Clients of the federation.",
        source="DFRD Sec. 4.1",
        condition=True,
    )
    active_clients: int = integer(
        0,
        low=0,
        high=10_000,
        symbol="S",
        doc="Clients drawn for each round; 0 is all of them.",
        source="DFRD Table 12",
        condition=True,
    )
    partition: str = choice(
        "dir_class",
        (*RECIPES, NATURAL),
        doc="How training samples are dealt to clients; natural leaves them with the clients of the data.",
        condition=True,
    )
    omega: float = real(
        0.1,
        low=1e-3,
        high=1e4,
        log=True,
        symbol="ω",
        doc="Dirichlet concentration of the partition; small is uneven.",
        source="DFRD Sec. 4.1",
        condition=True,
    )
    classes_per_client: int = integer(
        2, low=1, high=1000, symbol="k", doc="Classes each client holds in the pathological partition.", condition=True
    )
    min_samples: int = integer(
        10,
        low=1,
        high=10_000,
        doc="Fewest training samples a client may end up with.",
        source="DFRD code",
        condition=True,
    )
    partition_seed: int = integer(
        -1,
        low=-1,
        high=2**31 - 1,
        doc="Seed of who holds which samples: the same clients' data for all seeds; -1 deals them anew for each seed.",
        condition=True,
    )
    rho: int = integer(
        0,
        low=0,
        high=100_000,
        symbol="ρ",
        doc="Spread of model budgets, R_i = (1/2)^min(σ, ⌊ρ i/N⌋); 0 gives every client the full width.",
        source="DFRD Sec. 4.1",
        condition=True,
    )
    sigma: int = integer(
        4,
        low=0,
        high=10,
        symbol="σ",
        doc="Cap of the budget's exponent: the narrowest client has width (1/2)^σ.",
        source="DFRD Sec. 4.1",
        condition=True,
    )
    stragglers: float = real(
        0.0, low=0.0, high=1.0, doc="Probability that a drawn client is slow in a round.", condition=True
    )
    straggler_work: float = real(
        0.0,
        low=0.0,
        high=1.0,
        doc="Share of its local steps a slow client manages; 0 drops its upload.",
        condition=True,
    )
    validation_fraction: float = real(
        0.1, low=0.0, high=0.5, doc="Stratified share of the training data that searches select on."
    )
    client_test_fraction: float = real(
        0.0,
        low=0.0,
        high=0.5,
        doc="Share of its own samples a client keeps for testing (validation is then taken inside each client too); "
        "0 measures AMP, FM and WLP on label mixes of the test set.",
        condition=True,
    )
    target: float = real(
        0.0,
        low=0.0,
        high=1.0,
        doc="Level of target_metric for rounds_to_target and bytes_to_target; 0 leaves these metrics out.",
        condition=True,
    )
    target_metric: str = choice(
        "global_accuracy",
        ("global_accuracy", "local_accuracy", "amp", "wlp", "p_acc", "p_acc_global", "g_acc_virtual"),
        doc="What rounds_to_target and bytes_to_target watch.",
        condition=True,
    )
    attack_images: int = integer(
        0,
        low=0,
        high=1000,
        doc="Images attacked for psnr after the last round; 0 leaves that metric out.",
        source="FedMD-CG Table 2",
    )
    attack_steps: int = integer(
        300, low=1, high=10_000, doc="Outer L-BFGS iterations of the attack.", source="Zhu et al. 2019 code"
    )
    attack_private: str = choice(
        "random",
        ("random", "searched"),
        doc="What the attacker puts in place of a part that is not uploaded: random weights, or weights it "
        "searches for too.",
    )
    batch_norm: str = choice(
        "batch",
        models.BATCH_NORMS,
        doc="Statistics that models' batch normalisation evaluates with: those of the batch at hand, or running ones "
        "(momentum 0.1), which are sent and averaged like weights.",
        source="DFRD code; FedMD-CG code",
    )
    precision: str = choice(
        "fp32",
        PRECISIONS,
        doc="Arithmetic of models' forward and backward passes; weights, losses and updates are float32. tf32 needs "
        "a GPU; auto: fp32, but on a GPU what a paired test over seeds allows for large convolutional models.",
    )
    executor: str = choice(
        "auto",
        ("auto", "loop", "graph", "vmap"),
        doc="Clients one after the other (loop; graph: their steps recorded as CUDA graphs) or those of equal shape as "
        "one program (vmap); auto: on CUDA, where the method allows it, vmap for small models and graph for others; "
        "loop elsewhere. On CUDA a server's steps are recorded too, unless it is loop that was asked for.",
    )
    own_metrics: str = text(
        "none",
        doc="Functions of your own that are measured too, FILE.py:FUNCTION or a plug-in's name, with commas between; "
        "--metric FILE.py:FUNCTION adds one.",
    )
    eval_every: int = integer(
        1, low=1, high=100_000, doc="Rounds between evaluations; the last round is always evaluated."
    )
    eval_test: str = choice(
        "every",
        ("every", "end"),
        doc="Evaluations that measure on the test set too: every one, or (end) those of the last round and of rounds "
        "after which early stopping may end a trial. Searches select on validation data and need no other.",
    )


def budgets(clients: int, rho: int, sigma: int) -> tuple[float, ...]:
    """Width budgets `R_i = (1/2)^min(σ, ⌊ρ i/N⌋)`, i = 1..N (DFRD Sec. 4.1 as corrected in its code)."""
    return tuple(0.5 ** min(sigma, rho * i // clients) for i in range(1, clients + 1))


@dataclass(frozen=True)
class Federation:
    """What every party knows: sizes, shapes, architectures, budgets, the run's seed. No samples."""

    seed: int
    clients: int
    sizes: tuple[int, ...]
    classes: int
    shape: tuple[int, int, int]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    model: str
    widths: tuple[float, ...]
    rounds: int
    #: Clients drawn for each round.
    active: int = 0
    device: torch.device = torch.device("cpu")
    #: Arithmetic of the passes of all modules, see `trainables.models.precision`; never `auto`.
    precision: str = "fp32"
    #: Which statistics batch normalisation evaluates with, see `trainables.models.layers`.
    batch_norm: str = "batch"
    #: What a sample is (`trainables.data.dataset`), and what the user's own values are: offset + scale · value.
    kind: str = "images"
    offset: float = 0.0
    scale: float = 255.0
    #: How many tokens there are, where samples are sequences of them.
    vocabulary: int = 0
    #: Records the steps of a server that can be; None: they are taken one by one.
    record: Recorder | None = field(default=None, repr=False, compare=False)
    _networks: dict[object, nn.Module] = field(default_factory=dict, repr=False, compare=False)

    @property
    def rng(self) -> Rng:
        """The root of the run's random streams."""
        return Rng(self.seed)

    def network(self, width: float = 1.0, *, role: str = "", scaler: bool = False) -> models.Model:
        """A module of the federation's architecture at `width`, to be loaded with `params.put` before use.

        One module is made per (width, role, scaler) and reused: code that needs two at once gives them two roles."""
        return self.cached(
            ("network", width, role, scaler),
            lambda: self.built(self.model, width, scaler),
        )

    def built(self, name: str, width: float = 1.0, scaler: bool = False) -> models.Model:
        """A new model of any registered architecture for the federation's samples, classes and batch normalisation."""
        return models.build(name, self.shape, self.classes, width, scaler, self.batch_norm, self.vocabulary)

    def cached(self, key: object, build: Callable[[], Module]) -> Module:
        """The module remembered under `key`, built on first use, channels last, on the federation's device, in its
        precision."""
        if key not in self._networks:
            self._networks[key] = build().to(self.device, memory_format=torch.channels_last)  # type: ignore[call-overload]
            if self.precision == "bf16":
                lower(self._networks[key], self.device)
        return cast(Module, self._networks[key])

    def initial_params(self, *name: str | int, width: float = 1.0) -> Params:
        """Freshly drawn weights; the same for every method and configuration of one seed."""
        module = self.network(width)
        models.initialise(module, self.rng.torch("init", *name))
        return take(module)


@dataclass(frozen=True)
class Images:
    """All stored samples of a data set, training before test, without a copy: on a CPU the node's shared maps."""

    train: Tensor
    test: Tensor
    #: Names the content of the data set.
    content: str

    def __getitem__(self, positions: Tensor) -> Tensor:
        """The images `(B, ch, H, W)` at `positions` `(B,)`."""
        from_test = positions - len(self.train)
        if bool((from_test < 0).all()):
            return self.train.index_select(0, positions.to(self.train.device))
        if bool((from_test >= 0).all()):
            return self.test.index_select(0, from_test.to(self.test.device))
        device = self.train.device
        found = torch.empty((len(positions), *self.train.shape[1:]), dtype=self.train.dtype, device=device)
        # Places, not masks: a GPU would have to be waited for to know how many a mask holds.
        for part, rows, places in (
            (self.train, (from_test < 0).nonzero().squeeze(1), positions),
            (self.test, (from_test >= 0).nonzero().squeeze(1), from_test),
        ):
            found.index_copy_(0, rows.to(device), part.index_select(0, places[rows].to(device)))
        return found


@dataclass(frozen=True)
class ClientData:
    """One client's training samples: stored ones, shared with the whole node, normalised batch by batch."""

    client: int
    images: Images
    #: Positions of this client's samples in `images`, `(n,)`.
    indices: Tensor
    #: Class of each of this client's samples, `(n,)`.
    y: Tensor
    classes: int
    mean: Tensor
    std: Tensor
    device: torch.device
    #: Share of the planned steps this client manages this round.
    step_share: float = 1.0

    def __len__(self) -> int:
        return len(self.indices)

    def batch(self, chosen: Tensor) -> tuple[Tensor, Tensor]:
        """Normalised images `(B, ch, H, W)` and labels `(B,)` of the samples at `chosen` (positions in 0..n-1)."""
        return normalise(self.images[self.indices[chosen]].to(self.device), self.mean, self.std), self.y[chosen].to(
            self.device
        )

    def some(self, samples: int) -> ClientData:
        """The client with about so many of its samples, spread over its classes, of each of which one is left."""
        if samples >= len(self):
            return self
        order = self.y.argsort(stable=True)
        first = torch.cat([torch.ones(1, dtype=torch.bool), self.y[order].diff() != 0])
        kept = torch.cat([order[first], order[torch.arange(samples) * len(self) // samples]]).unique()
        return replace(self, indices=self.indices[kept], y=self.y[kept])

    def label_counts(self) -> Tensor:
        """Class histogram of the whole local training set, `(C,)`."""
        return torch.bincount(self.y, minlength=self.classes)


def gather(clients: Sequence[ClientData], chosen: Tensor) -> tuple[Tensor, Tensor]:
    """Normalised images `(K, n, ch, H, W)`, laid out plainly, and labels `(K, n)` of K clients of one data set, at each
    one's `chosen` `(K, n)`."""
    first = clients[0]
    positions = torch.cat([c.indices[own] for c, own in zip(clients, chosen, strict=True)])
    labels = torch.stack([c.y[own] for c, own in zip(clients, chosen, strict=True)])
    x = _scaled(first.images[positions].to(first.device), first.mean, first.std)
    return x.view(*chosen.shape, *x.shape[1:]), labels.to(first.device)


def normalise(images: Tensor, mean: Tensor, std: Tensor) -> Tensor:
    """Stored samples `(B, ch, H, W)` to float `(x/255 - mean)/std` of uint8 and `(x - mean)/std` of float32, channels
    last."""
    # First channel by channel in the images' own memory order, then one transposition: half the time of working on
    # interleaved channels.
    scaled = _scaled(images, mean, std)
    return torch.empty_like(scaled, memory_format=torch.channels_last).copy_(scaled)


def _scaled(images: Tensor, mean: Tensor, std: Tensor) -> Tensor:
    """The same in the images' own layout."""
    return unit(images).sub_(mean[:, None, None]).div_(std[:, None, None])


def unit(stored: Tensor) -> Tensor:
    """A copy of stored samples as float32: of uint8 a 255th."""
    return stored.to(torch.float32, copy=True) if stored.is_floating_point() else stored.to(torch.float32).div_(255.0)
