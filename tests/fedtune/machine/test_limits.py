"""Limits that are too low for torch or Ray are told before either is loaded."""

from __future__ import annotations

import resource

import pytest

from fedtune.machine.limits import check_limits
from search_spaces.errors import UserError

NONE = resource.RLIM_INFINITY
GIB = 1 << 30


def limited(monkeypatch: pytest.MonkeyPatch, addresses: tuple[int, int], files: tuple[int, int]) -> None:
    limits = {resource.RLIMIT_AS: addresses, resource.RLIMIT_NOFILE: files}
    monkeypatch.setattr(resource, "getrlimit", limits.__getitem__)


@pytest.mark.parametrize(
    ("addresses", "files"),
    [((NONE, NONE), (1024, NONE)), ((8 * GIB, 8 * GIB), (256, 256)), ((16 * GIB, NONE), (64, 4096))],
)
def test_enough(monkeypatch: pytest.MonkeyPatch, addresses: tuple[int, int], files: tuple[int, int]) -> None:
    """Ray raises the limit of open files itself, as far as it may."""
    limited(monkeypatch, addresses, files)
    check_limits()


def test_too_little(monkeypatch: pytest.MonkeyPatch) -> None:
    limited(monkeypatch, (GIB, NONE), (40, 40))
    with pytest.raises(UserError) as told:
        check_limits()
    first, second = told.value.problems
    assert first == (
        "The limit of a process's addresses (ulimit -v) must be at least 8 GiB, got 1 GiB. Raise it in the shell or "
        "service that starts fedtune."
    )
    assert "open files (ulimit -n) must be at least 256, got 40." in second
