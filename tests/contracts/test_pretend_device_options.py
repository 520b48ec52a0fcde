"""Options with tensors that no other option looks at, on a device that is not the processor's; all options are in
`test_pretend_device`, among the slow tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.contracts.test_methods import values_for
from tests.contracts.test_pretend_device import SMALL, assert_as_on_a_cpu, pytestmark, same_kernels

__all__ = ["pytestmark", "same_kernels"]


@pytest.mark.parametrize(
    ("name", "key", "value"),
    [
        ("dfrd", "renormalise_synthetic", True),  # the data set's mean and deviation
        ("fedgen", "teacher", "logits"),  # the clients' shares of the samples
    ],
)
def test_what_one_option_looks_at_is_on_the_device(
    name: str, key: str, value: object, toy: Path, tmp_path: Path
) -> None:
    assert_as_on_a_cpu(name, values_for(name, toy, **SMALL | {key: value}), tmp_path)
