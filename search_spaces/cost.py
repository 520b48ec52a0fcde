"""What a round costs, by the marks of a space file.

    search:
      local_steps: {low: 5, high: 100, cost: 0.8}

says: of the seconds of a round in which every marked parameter stands at its upper end, the part 0.8 is in proportion
to local_steps. The parts s_j of all marked parameters add up to at most 1; what is left of a round does not depend on
them. So a round of the configuration x costs

    c(x) = 1 - Σ_j s_j (1 - x_j / high_j)

of what the dearest one costs: with the mark above, one of 5 local steps costs 0.2 + 0.8 · 5/100 = 0.24 of one of 100. A
marked parameter that `--set` fixes counts as if it stood at its upper end. Numbers that are searched from 0 or more can
be marked. Nothing checks that 0 of them costs nothing: search `local_epochs` from 1, as its 0 means that `local_steps`
decides.

The sampler `ei` proposes, of 200 random configurations (400 where it proposes several together), the one with the
largest expected improvement divided by its cost (expected improvement per second: Snoek, Larochelle and Adams 2012).
With another sampler the search says that costs are not compared. The part is declared and not measured on purpose: the
same seed gives the same trials on every machine, however many run at once, and no clock can promise that.

To find the part, run one trial of two or three rounds at the upper ends and look at a row of its `rounds.jsonl`. For
local work it is `seconds_client` divided by `seconds`, for work of the server `seconds_server` divided by `seconds`.
Half a tenth more or less does not matter. Mark a parameter where all of this holds:

- The time is what is limited, not the number of trials. With `--trials` alone a marked search takes less time, and may
  end at a lower value.
- The dearest round costs several times the cheapest one.
- The value gains little from the costly end, or gains less and less on the way. Where the best value needs the costly
  end, the search tries many cheap configurations first and comes there later.
"""

from __future__ import annotations

from collections.abc import Mapping

from search_spaces.dimension import Dimension
from search_spaces.errors import Shown, sentence
from search_spaces.parameter import Value

#: What one mark must be, for the standard sentence.
MUST = "a number above 0 and at most 1, the part of a round's cost that is in proportion to it"
#: Parts are decimal fractions; their sum is rounded.
_ROUNDING = 1e-9


def marked(search: Mapping[str, Dimension]) -> dict[str, Dimension]:
    """The searched parameters that are marked, by key."""
    return {key: dimension for key, dimension in search.items() if dimension.cost is not None}


def of_a_round(search: Mapping[str, Dimension], values: Mapping[str, Value]) -> float:
    """c(x) of the values by key (see the module's text)."""
    saved = 0.0
    for key, dimension in marked(search).items():
        value, high = values[key], dimension.high
        assert dimension.cost is not None and high is not None and isinstance(value, (int, float))
        saved += dimension.cost * (1 - value / high)
    return 1 - saved


def problem(search: Mapping[str, Dimension], where: str) -> str | None:
    """Why costs cannot be told from these marks, which stand at `where`, in one sentence; None where they can."""
    found = marked(search)
    for key, dimension in found.items():
        assert dimension.low is not None and dimension.high is not None
        if dimension.low < 0 or dimension.high <= 0:
            got = Shown(f"{dimension.low:g} to {dimension.high:g}")
            must = "from 0 or more to more than 0, as its cost is marked"
            return sentence(f"search of {key}", must, got, where, "Narrow it, or leave its cost out.")
    names = f"cost{'s' * (len(found) > 1)} of {' and '.join(found)}"
    total = sum(dimension.cost or 0.0 for dimension in found.values())
    if total > 1 + _ROUNDING:
        return sentence(
            names, "at most 1 together, the whole cost of a round", Shown(f"{total:g}"), where, "Lower them."
        )
    lowest = {key: dimension.low for key, dimension in found.items() if dimension.low is not None}
    if of_a_round(search, lowest) <= _ROUNDING:
        low = " and ".join(f"{key} {value:g}" for key, value in lowest.items())
        must = f"below 1, as a round with {low} would cost nothing"
        return sentence(names, must, Shown(f"{total:g}"), where, "Lower it a little.")
    return None
