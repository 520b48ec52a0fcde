"""THE ONE PLACE WHERE RAY ITSELF IS CHANGED, for as long as it takes to start and by nothing but this context.

    with without_unused_servers(), as_our_driver(), on_loopback():
        ray.init(...)

**Servers.** Ray starts three servers that nothing here asks, and has no option to leave them out: one that adds
machines (`start_monitor`), one for its dashboard (`start_api_server`), one that shows other processes' output
(`start_log_monitor`; trials have logs of their own). With them its start takes 2.9 s instead of 1.3 and its end 1.4 s
instead of 0.3.

They are started by methods of Ray's private class `ray._private.node.Node`, which do nothing inside the context. Where
another Ray has no such class or method, it starts all its servers: searches then work as well and begin later.
`tests/fedtune/machine/test_ray_patch.py` fails then and says what to do.
**The driver.** Ray handles SIGTERM from its start on, by raising `SystemExit` wherever its start has got to
(`set_sigterm_handler`); we have a handler of our own. And it prints on stdout what its servers report, such as forty
lines of a log where a process died (`listen_error_messages`); we say in a sentence what became of the search.

**Loopback.** Ray reads RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER when it is imported, which in a program that imported it
before is too early for us.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

#: Methods of `ray._private.node.Node`.
UNUSED_SERVERS = ("start_monitor", "start_api_server", "start_log_monitor")


@contextlib.contextmanager
def without_unused_servers() -> Iterator[None]:
    """Inside, a Ray that starts leaves out the servers of `UNUSED_SERVERS`."""
    try:
        from ray._private.node import Node
    except ImportError:
        yield
        return
    with _changed(Node, dict.fromkeys(UNUSED_SERVERS, _nothing)):
        yield


@contextlib.contextmanager
def as_our_driver() -> Iterator[None]:
    """Inside, a Ray that starts or is joined leaves SIGTERM to the handler that is there, and never prints what its
    servers report."""
    from ray._private import utils, worker

    with _changed(utils, {"set_sigterm_handler": _nothing}), _changed(worker, {"listen_error_messages": _nothing}):
        yield


@contextlib.contextmanager
def on_loopback() -> Iterator[None]:
    """Inside, a Ray that starts has the address of the loopback device."""
    from ray._private import ray_constants

    with _changed(ray_constants, {"ENABLE_RAY_CLUSTER": False}):
        yield


def _nothing(*_: object, **__: object) -> None:
    """In place of what Ray is not to do."""


@contextlib.contextmanager
def _changed(owner: Any, attributes: dict[str, Any]) -> Iterator[None]:
    """Those attributes of a class or module that are there have these values until the block ends."""
    before = {name: getattr(owner, name) for name in attributes if hasattr(owner, name)}
    try:
        for name in before:
            setattr(owner, name, attributes[name])
        yield
    finally:
        for name, value in before.items():
            setattr(owner, name, value)
