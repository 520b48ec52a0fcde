"""What fedtune relies on inside Ray, and what to do when a new Ray has changed it."""

from __future__ import annotations

import inspect

import pytest
import ray

from fedtune.machine.ray_patch import UNUSED_SERVERS, without_unused_servers

BROKEN = (
    f"Ray {ray.__version__} does not start its monitor, API server and log monitor by ray._private.node.Node.{{}} "
    f"any more. Nothing fails, but "
    "every search starts about 1.6 s and ends about 1 s later. Look in ray/_private/node.py for what starts them "
    "now, and mend UNUSED_SERVERS in "
    "fedtune/machine/ray_patch.py; if Ray has got an option for it, use that in fedtune/machine/cluster.py and "
    "delete the patch."
)


@pytest.mark.parametrize("name", UNUSED_SERVERS)
def test_ray_still_starts_the_server_by_this_method(name: str) -> None:
    try:
        from ray._private.node import Node
    except ImportError:
        pytest.fail(BROKEN.format(name))
    assert callable(getattr(Node, name, None)) and f"self.{name}(" in inspect.getsource(Node), BROKEN.format(name)


def test_ray_is_changed_only_inside_the_context() -> None:
    from ray._private.node import Node

    before = [getattr(Node, name) for name in UNUSED_SERVERS]
    with pytest.raises(KeyError), without_unused_servers():
        assert all(getattr(Node, name) is not start for name, start in zip(UNUSED_SERVERS, before, strict=True))
        assert all(getattr(Node, name)(object(), 1, further=2) is None for name in UNUSED_SERVERS)
        raise KeyError
    assert [getattr(Node, name) for name in UNUSED_SERVERS] == before
