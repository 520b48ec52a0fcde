"""All completed trials on one line, with the winner's estimate and its interval above them: a small picture."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from analysis.estimate import Estimate
from analysis.report.page import escape

#: Ticks drawn at most; more would be one bar.
LIMIT = 400


def strip(found: Estimate, values: Sequence[float], shown: Callable[[float], str]) -> str:
    """An SVG as wide as its column. `values`: of all trials that ran to their end; `shown` writes one."""
    low, high = min([found.low, *values]), max([found.high, *values])
    span = (high - low) or 1.0

    def at(value: float) -> str:
        return f"{1 + 98 * (value - low) / span:.2f}%"

    step = max(1, len(values) // LIMIT)
    ticks = "".join(f'<line class="tick" x1="{at(v)}" x2="{at(v)}" y1="24" y2="36"/>' for v in sorted(values)[::step])
    told = (
        f"The estimate {shown(found.mean)} and its interval from {shown(found.low)} to {shown(found.high)}, above the "
        f"values of {len(values)} trial{'s' * (len(values) != 1)} from {shown(low)} to {shown(high)}."
    )
    return (
        f'<svg class="strip" height="40" role="img" aria-label="{escape(told)}"><title>{escape(told)}</title>'
        f'<line class="axis" x1="0.5%" x2="99.5%" y1="30" y2="30"/>{ticks}'
        f'<line class="interval" x1="{at(found.low)}" x2="{at(found.high)}" y1="12" y2="12"/>'
        f'<circle class="mean" cx="{at(found.mean)}" cy="12" r="6"/></svg>'
        f'<p class="ends small"><span>{escape(shown(low))}</span><span>bar: estimate and interval · ticks: trials that '
        f"ran to their end</span><span>{escape(shown(high))}</span></p>"
    )
