"""THE ONE PLACE WHERE RAY ITSELF IS CHANGED, for as long as it takes to start and by nothing but this context.

    with without_unused_servers():
        ray.init(...)

Ray starts three servers that nothing here asks, and has no option to leave them out: one that adds machines
(`start_monitor`), one for its dashboard (`start_api_server`), one that shows other processes' output
(`start_log_monitor`; trials have logs of their own). With them its start takes 2.9 s instead of 1.3 and its end 1.4 s
instead of 0.3.

They are started by methods of Ray's private class `ray._private.node.Node`, which do nothing inside the context. Where
another Ray has no such class or method, it starts all its servers: searches then work as well and begin later.
`tests/fedtune/machine/test_ray_patch.py` fails then and says what to do.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

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
    before = {name: getattr(Node, name) for name in UNUSED_SERVERS if hasattr(Node, name)}
    try:
        for name in before:
            setattr(Node, name, lambda self, *args, **more: None)
        yield
    finally:
        for name, start in before.items():
            setattr(Node, name, start)
