"""On what a run was computed, as far as that decides the last digits of its numbers.

The same seed gives the same bits with the same code and the same versions of the libraries on the same kind of
processor: PyTorch takes other kernels on another one, whose sums run in another order. Over rounds that can decide
which trial a search stops. Other code may give other numbers altogether, so a revision of a checkout of fedtune and a
method's own file count as versions do. (Two states of one revision with changes look the same.)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def kind(machine: Mapping[str, Any]) -> str:
    """A recorded machine's processor, the instructions that PyTorch uses of it, and the GPU: `AMD EPYC (AVX512)`."""
    processor, instructions, gpu = (machine.get(key) for key in ("processor", "instructions", "gpu"))
    return ", ".join(map(str, filter(None, (f"{processor} ({instructions})" if instructions else processor, gpu))))


def apart(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[tuple[str, str]]:
    """In what two provenances differ that can change numbers: what the one has, and what the other has.

    What only one of them has is not compared, such as a GPU, or the revision of a checkout."""
    found: list[tuple[str, str]] = []
    ours, theirs = (p.get("machine") or {} for p in (one, other))
    if any(
        ours[key] != theirs[key] for key in ("processor", "instructions", "gpu") if ours.get(key) and theirs.get(key)
    ):
        found.append((kind(ours), kind(theirs)))
    found += _code_apart(one, other)
    versions, others = (p.get("versions") or {} for p in (one, other))
    return found + [
        (f"{name} {version}", f"{name} {others[name]}")
        for name, version in versions.items()
        if others.get(name, version) != version
    ]


def _code_apart(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The same of the code that is no installed package: a method's or a sampler's own file, a checkout of fedtune."""
    found: list[tuple[str, str]] = []
    for kind in ("method_file", "model_file", "sampler_file"):
        file, its = one.get(kind) or {}, other.get(kind) or {}
        if file and its and file["hash"] != its["hash"]:
            found.append((f"{file['file']} {file['hash']}", f"{its['file']} {its['hash']}"))
    revision, another = one.get("git"), other.get("git")
    if revision and another and revision != another:
        found.append((f"fedtune's revision {_short(revision)}", f"fedtune's revision {_short(another)}"))
    return found


def _short(revision: str) -> str:
    """A git revision in ten characters, with `+changes` where its work tree had some."""
    commit, plus, changes = revision.partition("+")
    return commit[:10] + plus + changes


def parts(provenance: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """The provenance, those of continuations on other kinds of machine, and those of results taken from earlier runs,
    each with `machine`, `versions` and, where recorded, `git` and `method_file`."""
    return [provenance, *(provenance.get("continued") or []), *(provenance.get("taken") or [])]


def went_on(begun: Mapping[str, Any], here: Mapping[str, Any]) -> str | None:
    """The sentence for a run that goes on where its numbers may differ in their last digits; None where they do not."""
    found = apart(begun, here)
    if not found:
        return None
    then, now = (", ".join(side) for side in zip(*found, strict=True))
    other = "numbers" if _code_apart(begun, here) else "last digits"
    return (
        f"This run was begun with {then} and goes on with {now}, where the same seed may give other {other}: "
        "its numbers may differ from those of an uninterrupted run."
    )


def side_by_side(runs: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """A sentence for each run not computed like the first one, as a whole or in part; `runs`: provenances by name."""
    (first, basis), *rest = runs.items()
    sentences = []
    for name, provenance in ((first, basis), *rest):
        found = dict.fromkeys(pair for one in parts(basis) for other in parts(provenance) for pair in apart(one, other))
        if not found:
            continue
        ours, theirs = (", ".join(dict.fromkeys(side)) for side in zip(*found, strict=True))
        if name == first:
            sentences.append(
                f"{first} was computed in parts, with {ours}: the same seed may give other last digits there."
            )
        else:
            sentences.append(
                f"{first} was computed with {ours} and {name} with {theirs}, where the same seed may give other last "
                "digits: "
                "a small Δ may come from that."
            )
    return sentences
