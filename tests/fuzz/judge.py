"""Whether the rule holds for what came of an input."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.fuzz import child
from tests.fuzz.case import Case, tree
from tests.fuzz.child import BYTES, SECONDS, Outcome

#: A refusal is sentences: one per problem, each of a length that can be read.
LONGEST = 2000
#: What a command leaves only where it was cut off.
_LEFT = re.compile(r"(^|/)\.[^/]*\.tmp$|(^|/)unfinished-")
#: Exit code 1, "failed", where the input is as it should be: no trial ran to its end, or something else is missing.
_FAILED = ("No trial ran to its end", "must be mended before a search can run")


def observe(case: Case, here: Path, scene: Path, cache: Path) -> tuple[list[str], Outcome]:
    """Carries a case out in the folder `here`, which does not exist yet; what is wrong, and what came of it."""
    case.prepare(here, scene)
    before = tree(here)
    outcome = child.run(case, here, cache)
    return list(violations(case, outcome, before, tree(here))), outcome


def violations(
    case: Case, outcome: Outcome, before: Mapping[str, str | bytes], after: Mapping[str, str | bytes]
) -> Iterator[str]:
    """What of the rule does not hold; `before` and `after` are the folder's content."""
    if outcome.timed_out or outcome.seconds > SECONDS:
        yield f"no end within {SECONDS:g} s"
        return
    if outcome.grown > BYTES:
        yield f"{outcome.grown / 2**20:,.0f} MiB of memory"
    if "Traceback (most recent call last)" in outcome.err + outcome.out:
        yield "a traceback: " + (outcome.err.strip().splitlines() or ["?"])[-1][:300]
    elif outcome.code not in (0, 2) and not (outcome.code == 1 and any(s in outcome.out for s in _FAILED)):
        yield f"exit code {outcome.code}"
    hidden = [c for c in outcome.out + outcome.err if unicodedata.category(c) in ("Cc", "Cf", "Cs") and c not in "\n\t"]
    if hidden:
        yield f"control characters on the screen: {''.join(hidden[:10])!a}"
    yield from _refused(outcome, before, after) if outcome.code == 2 else _accepted(case, outcome, before, after)


def _refused(outcome: Outcome, before: Mapping[str, str | bytes], after: Mapping[str, str | bytes]) -> Iterator[str]:
    lines = outcome.err.strip().splitlines()
    if not lines:
        yield "refused without a word"
    if len("".join(lines)) > LONGEST * max(1, len(lines)) or any(len(line) > LONGEST for line in lines):
        yield f"a refusal of {len(outcome.err)} characters"
    if "The result cannot be printed" in outcome.err:
        return  # the work was done, and is whole; only its report was lost
    changed = sorted(path for path in before.keys() | after.keys() if before.get(path) != after.get(path))
    if changed:
        yield f"refused, and these have changed: {', '.join(changed[:5])}"


def _accepted(
    case: Case, outcome: Outcome, before: Mapping[str, str | bytes], after: Mapping[str, str | bytes]
) -> Iterator[str]:
    left = [path for path in after if path not in before and _LEFT.search(path)]
    if left:
        yield f"left behind: {', '.join(left[:5])}"
    for path, content in after.items():
        page = path.endswith("report.html") and before.get(path) != content and isinstance(content, bytes)
        if page and not content.rstrip().endswith(b"</html>"):  # type: ignore[union-attr]
            yield f"{path} is a part of a page"
    if case.output != "file" or outcome.reached or outcome.code != 0:
        return
    if not outcome.out.strip() and "-o" not in case.words and "--output" not in case.words:
        yield "accepted without a result"
    if "--json" in case.words:
        try:
            printed = json.loads(outcome.out, parse_constant=_no_number)
        except ValueError as error:
            yield f"what --json prints is no JSON: {error}"
            return
        untrue = [n for n, value in (case.truth or {}).items() if _anywhere(printed.get(n)) != _anywhere(value)]
        if untrue:
            yield f"not what the undamaged folder has: {', '.join(untrue)}"


def _anywhere(value: object) -> str:
    """As JSON, with paths from the folder of a scene on, as the undamaged one lay elsewhere."""
    return re.sub(r'"/[^"]*?/(auto|table)/', r'"\1/', json.dumps(value))


def _no_number(text: str) -> float:
    raise ValueError(f"{text} is no JSON")
