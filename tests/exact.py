"""Whether a faster way of computing something is right: by float64, not by a tolerance that fits one processor.

Two ways in float32 (or bfloat16) that sum in another order never agree to the bit, and by how much they differ depends
on the processor, on PyTorch's kernels for it, and on the job. How far the *plain* way is from the same job in float64
says how much rounding this job does here. So the faster way is right where its own distance from float64 is no larger,
up to

    ‖fast − exact‖  ≤  FACTOR · ‖plain − exact‖  +  ULPS · ε · ‖exact‖         for every tensor, 2-norm over its entries

FACTOR: each distance is one draw of the same kind of sum of roundings. For a tensor of many entries the quotient of two
such draws is 1 to a few per cent, and where one rounding moves all entries alike it is seldom above 3. ULPS: the plain
way may be nearer than one may ask for, even exact. A float32 number is off by up to ε/2 of itself once it is stored,
and each of the last operations adds as much; four units in the last place are what a few of them come to. A number by
itself (a loss) has no norm to even out luck, and is a difference of larger numbers: of logits and the logarithm of a
sum, which are about 1 in size. Its ULPS are those of 1 or of itself, whichever is larger. So are those of a tensor of
one entry, such as the bias of a layer with one channel: of two draws of one number the first is in one of six cases
more than FACTOR times the second (2/π · arctan 1/4 where both are normal), so its ULPS have to even out luck.

That holds where the result is a smooth function of the input. A ReLU at zero, or two equal values in one window of
pooling, is decided by rounding, and a gradient jumps with it: the correct float32 gradient is then either of two. A
float64 run says how near it came to that (`Float64.margin`). Below MARGIN a job is not decided, and JUMP of every
tensor's size is allowed besides. MARGIN is eight units in the last place, some ten times the rounding of what enters a
ReLU. JUMP is ten times what one jump was seen to make (0.6 % of a bias), and far below what other weights or other
batches make.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import torch
from torch import Tensor

FACTOR, ULPS = 4.0, 4.0
MARGIN, JUMP = 8 * torch.finfo(torch.float32).eps, 0.05


def assert_as_exact(
    fast: Any, plain: Any, exact: Any, *, eps: float = torch.finfo(torch.float32).eps, decided: bool = True
) -> None:
    """Raises `AssertionError` unless every tensor and number of `fast` is as near to `exact` as those of `plain` are,
    see above.

    The three are tensors, numbers, or nests of mappings, sequences and dataclasses of them, built equally. `exact` is
    float64. `eps` is that of the arithmetic of `fast` and `plain`. What is no floating-point number (counts, names,
    None) must be the same in all three."""
    loose = ULPS * eps + (0.0 if decided else JUMP)
    wrong = [message for place, f, p, e in _leaves(fast, plain, exact) if (message := _apart(place, f, p, e, loose))]
    assert not wrong, "\n".join(wrong)


def distance(value: Any, exact: Any) -> float:
    """‖value − exact‖ / ‖exact‖ of two tensors or numbers, in float64."""
    a, b = (torch.as_tensor(v, dtype=torch.float64) for v in (value, exact))
    return float((a - b).norm() / b.norm())


def _apart(place: str, fast: Any, plain: Any, exact: Any, loose: float) -> str | None:
    """What is wrong with this one, None where nothing is; `loose` is allowed besides, as a share of the size."""
    if not isinstance(exact, float) and not (isinstance(exact, Tensor) and exact.is_floating_point()):
        same = (
            torch.equal(fast, exact) and torch.equal(plain, exact)
            if isinstance(exact, Tensor)
            else fast == plain == exact
        )
        return None if same else f"{place}: {fast!r}, {plain!r} and {exact!r} must be the same"
    f, p, e = (torch.as_tensor(v).detach().double() for v in (fast, plain, exact))
    if not f.shape == p.shape == e.shape:
        return f"{place}: shapes {tuple(f.shape)}, {tuple(p.shape)} and {tuple(e.shape)} must be the same"
    assert isinstance(exact, float) or exact.dtype == torch.float64, (
        f"{place}: what is compared with must be float64, got {exact.dtype}"
    )
    size = float(e.norm()) if e.numel() > 1 else max(abs(float(e)), 1.0)
    off, own = float((f - e).norm()), float((p - e).norm())
    allowed = FACTOR * own + loose * size
    if off <= allowed < math.inf:  # not so where one of them is not a number
        return None
    return (
        f"{place}: {off:.2g} from float64, where {allowed:.2g} is allowed: {own:.2g} is the plain way's distance, "
        f"{size:.2g} the size"
    )


def _leaves(fast: Any, plain: Any, exact: Any, place: str = "") -> Iterator[tuple[str, Any, Any, Any]]:
    """The tensors, numbers and other values of three equally built nests, with where they stand."""
    if is_dataclass(exact) and not isinstance(exact, type):
        fast, plain, exact = ({f.name: getattr(v, f.name) for f in fields(exact)} for v in (fast, plain, exact))
    if isinstance(exact, Mapping):
        assert fast.keys() == plain.keys() == exact.keys(), (
            f"{place}: {sorted(fast)}, {sorted(plain)} and {sorted(exact)} must be the same"
        )
        for key, item in exact.items():
            yield from _leaves(fast[key], plain[key], item, f"{place}/{key}")
    elif isinstance(exact, (list, tuple)):
        assert len(fast) == len(plain) == len(exact), (
            f"{place}: lengths {len(fast)}, {len(plain)} and {len(exact)} must be the same"
        )
        for at, (f, p, e) in enumerate(zip(fast, plain, exact, strict=True)):
            yield from _leaves(f, p, e, f"{place}/{at}")
    else:
        yield place or "value", fast, plain, exact
