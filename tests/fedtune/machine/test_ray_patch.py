"""What fedtune relies on inside Ray, and what to do when a new Ray has changed it."""

from __future__ import annotations

import inspect

import pytest
import ray

from fedtune.machine.ray_patch import UNUSED_SERVERS, as_our_driver, on_loopback, without_unused_servers

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


def test_ray_still_takes_sigterm_and_prints_reports_by_these_functions() -> None:
    """Otherwise SIGTERM while Ray starts raises `SystemExit` in the middle of it, and a worker's death prints lines."""
    from ray._private import utils, worker

    source = inspect.getsource(worker)
    assert "ray._private.utils.set_sigterm_handler(" in source and "target=listen_error_messages," in source
    before = utils.set_sigterm_handler, worker.listen_error_messages
    with as_our_driver():
        assert utils.set_sigterm_handler(object()) is None and worker.listen_error_messages(1, 2) is None
    assert (utils.set_sigterm_handler, worker.listen_error_messages) == before


def test_ray_still_decides_by_this_variable_where_it_listens() -> None:
    from ray._private import ray_constants, services

    assert "if not ray_constants.ENABLE_RAY_CLUSTER" in inspect.getsource(services.get_node_ip_address)
    before = ray_constants.ENABLE_RAY_CLUSTER
    with on_loopback():
        assert ray_constants.ENABLE_RAY_CLUSTER is False
    assert ray_constants.ENABLE_RAY_CLUSTER is before
