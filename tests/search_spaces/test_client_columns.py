"""Rows of many clients: what a text of columns holds, and that no other text passes for one."""

from __future__ import annotations

import base64
import json
import math
import struct
from pathlib import Path

import pytest

from search_spaces.client_columns import LISTED, packed, unpacked
from trainables.worker import rounds_jsonl


def test_few_clients_are_a_list_that_people_read() -> None:
    values = [0.5, None, math.nan] + [0.25] * (LISTED - 3)
    assert packed(values) == [0.5, None, None] + [0.25] * (LISTED - 3)
    assert unpacked(packed(values)) == packed(values)


def test_columns_are_numbers_of_32_bits_with_the_low_bytes_first() -> None:
    """Written by hand: client 3 and client 100 of 101 have 0.5 and 1/3."""
    places, numbers = struct.pack("<2I", 3, 100), struct.pack("<2f", 0.5, 1 / 3)
    held = f"101 {base64.b64encode(places).decode()} {base64.b64encode(numbers).decode()}"
    values = [None] * 3 + [0.5] + [None] * 96 + [1 / 3]
    assert packed(values) == held
    assert unpacked(held) == values[:100] + [struct.unpack("<f", struct.pack("<f", 1 / 3))[0]]
    every = struct.pack("<101f", *[0.5] * 101)
    assert packed([0.5] * 101) == f"101 - {base64.b64encode(every).decode()}"
    assert unpacked(packed([0.5] * 101)) == [0.5] * 101
    assert unpacked(packed([None] * 101)) == [None] * 101


def test_rows_of_a_thousand_clients_take_a_fifth_and_come_back(tmp_path: Path) -> None:
    """Of which fifty trained. Read and written again a row is the same text."""
    row = {"round": 1, "seed": 0, "global_accuracy": 0.1}
    row |= {"client_accuracy": [k / 1001 for k in range(1000)]}
    row |= {"local_accuracies": [k / 997 if k % 20 == 7 else None for k in range(1000)]}
    path = tmp_path / "rounds.jsonl"
    rounds_jsonl.append(path, [row])
    written = path.read_bytes()
    assert len(written) < len(json.dumps(row)) / 3.5
    (found,) = rounds_jsonl.read_rows(path)
    assert found.keys() == row.keys() and found["global_accuracy"] == 0.1
    for name in ("client_accuracy", "local_accuracies"):
        assert found[name] == [None if v is None else pytest.approx(v, rel=1e-7) for v in row[name]]
    assert rounds_jsonl.first_rows(path, 1, [0]) == [found]
    rounds_jsonl.rewrite(path, [found])
    assert path.read_bytes() == written


@pytest.mark.parametrize(
    "held",
    [
        "",
        "101",
        "101 -",
        "101 - ????",
        "101 - AAAAPw==",  # one number for all
        "-1 - ",
        "99999999999 - ",
        "101 AQAAAAEAAAA= AAAAPwAAAD8=",  # client 1 twice
        "101 ZQAAAA== AAAAPw==",  # client 101 of 101
        "101 AAA= AAAAPw==",
    ],
)
def test_any_other_text_is_no_column(held: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError):
        unpacked(held)
    path = tmp_path / "rounds.jsonl"
    path.write_text(json.dumps({"round": 1, "seed": 0, "client_accuracy": held}) + "\n")
    with pytest.raises(rounds_jsonl.Damaged, match="garbled in round 1"):
        rounds_jsonl.first_rows(path, 1, [0])
