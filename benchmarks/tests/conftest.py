"""The fixtures that these tests share with those of the product."""

from __future__ import annotations

from tests.fedtune.api.test_auto import auto, whole
from tests.fedtune.conftest import conduct

__all__ = ["auto", "conduct", "whole"]
