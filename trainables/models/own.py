"""A network of a user's own: any `torch.nn.Module` of a Python file, `--set model=mynet.py:Net`, or of a plug-in.

    class Net(torch.nn.Module):
        def __init__(self, classes): ...          # of `ARGUMENTS`, those that it takes by name
        def forward(self, x): ...                 # logits (B, classes)

x are normalised images `(B, ch, H, W)`, vectors `(B, d)`, or tokens `(B, length)`, int64. The head is the module that
the attribute `head` is, or whose path it names (`head = "fc2"`), otherwise the last linear layer; `forward` must end
with it, as methods train, send and replace the head by itself.

What is made of it so that runs can be repeated: weights are drawn by the class's own constructor under a seed of the
run. Batch normalisation becomes that of the federation (`batch_norm`, momentum 0.1). Where a forward pass in training
is random, as dropout is, it is drawn from a seed that the batch's content gives, so that the same step has the same
mask however often a run was interrupted. Its width cannot be cut, so `rho` must be 0, and clients train in a loop.
"""

from __future__ import annotations

import hashlib
import inspect
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from search_spaces.errors import Shown, UserError, sentence
from trainables import own_code
from trainables.models.base import Model, Shape
from trainables.models.layers import BatchNorm

#: What a constructor may ask for, by the names that it may use.
ARGUMENTS: dict[str, Callable[[OwnModel], object]] = {
    **dict.fromkeys(("classes", "num_classes", "n_classes"), lambda model: model.classes),
    **dict.fromkeys(("features", "in_features", "num_features"), lambda model: math.prod(model.shape)),
    **dict.fromkeys(("channels", "in_channels"), lambda model: model.shape[0]),
    "height": lambda model: model.shape[1],
    "width": lambda model: model.shape[2],
    "shape": lambda model: model.shape,
    **dict.fromkeys(("vocabulary", "vocabulary_size", "num_embeddings"), lambda model: model.vocabulary),
    "length": lambda model: model.shape[0],
}


def class_of(reference: str) -> Callable[..., nn.Module]:
    """The class that `mynet.py:Net` names; of a file alone its only network. Raises `UserError` where there is none."""
    found = own_code.split(reference)
    assert found is not None, reference
    path, name = found
    module = own_code.module(path)
    networks = own_code.defined(module, lambda value: inspect.isclass(value) and issubclass(value, nn.Module))
    if not name and len(networks) == 1:
        name = networks[0]
    made = getattr(module, name, None) if name else None
    if not callable(made):
        said = ", ".join(networks) or "none"
        fix = "Write --set model=FILE.py:CLASS."
        raise UserError(sentence("model", f"one of the networks of {path}", Shown(name or said), "--set", fix))
    network: Callable[..., nn.Module] = made
    return network


class OwnModel(Model):
    """A network of a user's own, cut into what its head reads (`body`) and the head."""

    draws_itself = True
    #: How many tokens there are, where samples are sequences of them; else 0.
    vocabulary: int

    def __init__(
        self, make: Callable[..., nn.Module], name: str, shape: Shape, classes: int, rate: float, vocabulary: int = 0
    ) -> None:
        super().__init__(shape, classes, rate, scaler=False)
        if rate != 1:
            must = f"0 for the model {name}, which does not say how it becomes narrower"
            raise UserError(sentence("rho", must, Shown("clients of width " + f"{rate:g}")))
        self._make, self._called, self.vocabulary = make, name, vocabulary
        whole = self._made()
        self._check(whole)
        self.random = self._is_random(whole)
        self.body, self.head = _cut(whole, name)
        self.feature_width = self._width()
        self.axes = {key: (None,) * tensor.dim() for key, tensor in self.state_dict().items()}

    def draw(self, generator: torch.Generator) -> None:
        """Takes the weights of a network that the constructor makes under a seed of `generator`."""
        seed = int(torch.randint(2**62, (1,), generator=generator, device=generator.device))
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            body, head = _cut(self._made(), self._called)
        with torch.no_grad():
            for mine, drawn in ((self.body, body), (self.head, head)):
                own = mine.state_dict()
                for key, tensor in drawn.state_dict().items():
                    own[key].copy_(tensor)
                for key in own.keys() - drawn.state_dict().keys():  # statistics that the federation keeps
                    own[key].fill_(1 if key.endswith("running_var") else 0)

    def features(self, x: Tensor) -> Tensor:
        with _seeded(x) if self.random and self.training else _as_it_is():
            found: Tensor = self.body(self._input(x))
        return found

    def _input(self, x: Tensor) -> Tensor:
        flat = x.flatten(1) if self.shape[1:] == (1, 1) else x
        return flat.long() if self.vocabulary else flat

    def _made(self) -> nn.Module:
        """A network of the class, with the federation's batch normalisation."""
        try:
            asked = inspect.signature(self._make).parameters.values()
        except (TypeError, ValueError):
            asked = {}.values()
        given, missing = {}, []
        for one in asked:
            if one.name in ARGUMENTS:
                given[one.name] = ARGUMENTS[one.name](self)
            elif one.default is one.empty and one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD):
                missing.append(one.name)
        if missing:
            must = f"made from arguments among {', '.join(ARGUMENTS)}, or with defaults"
            raise UserError(sentence(f"The model {self._called}", must, Shown(", ".join(missing))))
        try:
            made = self._make(**given)
        except UserError:
            raise
        except Exception as error:  # whatever somebody's class raises
            raise UserError(f"The model {self._called} cannot be made: {type(error).__name__}: {error}.") from error
        if not isinstance(made, nn.Module):
            raise UserError(sentence(f"The model {self._called}", "a torch.nn.Module", Shown(type(made).__name__)))
        return _with_our_normalisation(made, self._called)

    def _drawn(self) -> Tensor:
        """Two samples as they are stored."""
        generator = torch.Generator().manual_seed(0)
        if self.vocabulary:
            return torch.randint(self.vocabulary, (2, *self.shape), generator=generator).float()
        return torch.randn(2, *self.shape, generator=generator)

    def _sample(self) -> Tensor:
        return self._input(self._drawn())

    def _check(self, whole: nn.Module) -> None:
        """Raises `UserError` where the network does not turn samples into logits."""
        try:
            with torch.no_grad(), torch.random.fork_rng(devices=[]):
                logits = whole.eval()(self._sample())
        except Exception as error:  # whatever somebody's forward raises
            shape = tuple(self._sample().shape[1:])
            said = " ".join(str(error).split())
            raise UserError(
                f"The model {self._called} cannot be fed samples of shape {shape}: {type(error).__name__}: {said}."
            ) from error
        wanted = (2, self.classes)
        if not isinstance(logits, Tensor) or tuple(logits.shape) != wanted:
            got = tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
            fix = "Take the number of classes as an argument, `def __init__(self, classes)`."
            must = f"logits of shape {wanted} for two samples"
            raise UserError(sentence(f"What the model {self._called} returns", must, Shown(str(got)), fix=fix))

    def _is_random(self, whole: nn.Module) -> bool:
        """Whether a forward pass in training draws from PyTorch's global generator."""
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            whole.train()
            x = self._sample()
            for seed in (1, 2):
                torch.manual_seed(seed)
                before = torch.get_rng_state()
                whole(x)
                if not torch.equal(before, torch.get_rng_state()):
                    return True
        return False

    def _width(self) -> int:
        """p of the features. Raises `UserError` where the head's input is no vector, or is not what decides the
        logits."""
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            self.eval()
            found = self.features(self._drawn())
            right = found.dim() == 2 and len(found) == 2
            try:
                right = right and tuple(self.head(found).shape) == (2, self.classes)
            except Exception:  # somebody's head, fed with what somebody's body gives
                right = False
            self.train()
        if not right:
            raise UserError(
                f"The model {self._called} must end with its head, which reads vectors and returns the logits, and its "
                f'forward pass goes on after {type(self.head).__name__}. Name the head: `head = "fc2"` in the class.'
            )
        return found.shape[1]


def _cut(whole: nn.Module, name: str) -> tuple[nn.Module, nn.Module]:
    """What the head reads, and the head."""
    where, head = _head(whole, name)
    if not where:
        return nn.Identity(), head
    whole.set_submodule(where, nn.Identity())
    return whole, head


def _head(whole: nn.Module, name: str) -> tuple[str, nn.Module]:
    """The path of the head, empty where it is the whole network, and the head. Raises `UserError` where there is
    none."""
    given = getattr(whole, "head", None)
    if isinstance(given, nn.Module):
        return "head", given
    paths = dict(whole.named_modules())
    if isinstance(given, str):
        if given not in paths or not given:
            fix = 'Write the path of a module, such as "classifier.2".'
            raise UserError(sentence(f"head of the model {name}", "a module of it", given, fix=fix))
        return given, paths[given]
    linear = [path for path, part in paths.items() if isinstance(part, nn.Linear)]
    if not linear:
        raise UserError(
            f'The model {name} has no linear layer, so its head is not known. Name it: `head = "last"` in the class.'
        )
    return linear[-1], paths[linear[-1]]


class _VectorNorm(BatchNorm):
    """The federation's batch normalisation of vectors `(B, C)` or sequences `(B, C, L)`."""

    def forward(self, x: Tensor, pool: bool = False, scaler: float = 1.0) -> Tensor:
        flat = x[:, :, None, None] if x.dim() == 2 else x[:, :, :, None]
        return super().forward(flat, pool, scaler).view_as(x)


def _with_our_normalisation(made: nn.Module, name: str) -> nn.Module:
    for path, part in list(made.named_modules()):
        if not isinstance(part, nn.modules.batchnorm._BatchNorm) or isinstance(part, BatchNorm):
            continue
        if not isinstance(part, nn.BatchNorm1d | nn.BatchNorm2d) or not part.affine or not path:
            must = "BatchNorm1d or BatchNorm2d with weights, or another kind, such as GroupNorm"
            raise UserError(sentence(f"Batch normalisation of the model {name}", must, Shown(repr(part))))
        ours = (BatchNorm if isinstance(part, nn.BatchNorm2d) else _VectorNorm)(part.num_features)
        ours.eps = part.eps
        with torch.no_grad():
            ours.weight.copy_(part.weight)
            ours.bias.copy_(part.bias)
        made.set_submodule(path, ours)
    return made


@contextmanager
def _seeded(x: Tensor) -> Iterator[None]:
    """PyTorch's global generators, seeded by the content of a batch and put back afterwards."""
    content = hashlib.blake2b(x.detach().float().cpu().contiguous().numpy().tobytes(), digest_size=7).digest()
    with torch.random.fork_rng(devices=[x.device] if x.is_cuda else []):
        torch.manual_seed(int.from_bytes(content))
        yield


@contextmanager
def _as_it_is() -> Iterator[None]:
    yield
