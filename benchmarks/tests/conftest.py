"""The fixtures that these tests share with those of the product."""

from __future__ import annotations

from tests.conftest import (
    one_thread,
    optunas_versions_once,
    pytest_addoption,
    pytest_collection_finish,
    pytest_collection_modifyitems,
    pytest_configure,
    toy,
)
from tests.fedtune.api.test_auto import auto, whole
from tests.fedtune.conftest import conduct, ray_cluster

__all__ = [
    "auto",
    "conduct",
    "one_thread",
    "optunas_versions_once",
    "pytest_addoption",
    "pytest_collection_finish",
    "pytest_collection_modifyitems",
    "pytest_configure",
    "ray_cluster",
    "toy",
    "whole",
]
