"""Files that were made to do harm: a run directory's, and a user's data set. Each is read or refused in one sentence,
soon and with little memory."""

from __future__ import annotations

import io
import json
import time
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pytest

from analysis.report import report
from analysis.report.files import write_tables
from analysis.runs import load_run
from analysis.runs.mappings import read_yaml
from fedtune.record.run_directory import write_document
from search_spaces import run_folder
from search_spaces.errors import UserError
from trainables.data import own

#: Ten lines that stand for a billion values.
BOMB = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 9)
)


def bombed(folder: Path, name: str, text: str) -> None:
    path = folder / name
    path.write_text(path.read_text() + text)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (BOMB, "an alias"),
        ("deep: " + "[" * 200 + "]" * 200, "nested more than 50 deep"),
        ("deep: " + "[" * 20_000, "nested more than 50 deep"),
        ("many: " + "9" * 100_000, "cannot be read"),
        ("when: !!timestamp 99", "cannot be read"),
    ],
    ids=["aliases", "deep", "very deep", "digits", "timestamp"],
)
def test_yaml_that_is_a_bomb(copy: Path, text: str, says: str) -> None:
    bombed(copy, run_folder.EXPERIMENT, text + "\n")
    started = time.process_time()
    with pytest.raises(UserError, match=says) as told:
        report(copy)
    assert time.process_time() - started < 10 and len(told.value.problems) == 1
    assert run_folder.EXPERIMENT in str(told.value)


def test_a_bomb_in_a_trials_configuration_is_left_out(copy: Path) -> None:
    run = load_run(copy)
    bombed(copy, f"{run_folder.trial_folder(run.best or 0)}/{run_folder.CONFIG}", BOMB)
    assert "x, x, x, x" not in report(copy).read_text()


@pytest.mark.parametrize("name", [run_folder.SPACE, run_folder.PROVENANCE])
def test_json_that_is_deep(copy: Path, name: str) -> None:
    (copy / name).write_text('{"a": ' + "[" * 100_000)
    assert report(copy).is_file()


def test_what_fedtune_writes_has_no_aliases(tmp_path: Path) -> None:
    shared = {"b": [1]}
    write_document(tmp_path / "a.yaml", {"one": shared, "two": shared})
    assert read_yaml(tmp_path / "a.yaml") == {"one": {"b": [1]}, "two": {"b": [1]}}


@pytest.mark.parametrize(
    "row",
    [
        '{"round": 3, "seed": 0, "val_global_accuracy": 1e999, "global_accuracy": -1e999}',
        '{"round": 3, "seed": 0, "val_global_accuracy": NaN}',
        '{"round": 3, "seed": 0, "val_global_accuracy": ' + "[" * 200 + "]" * 200 + "}",
        '{"round": 3, "seed": 0, "val_global_accuracy": {"a": 1}}',
        '{"round": 3, "seed": 0, "val_global_accuracy": "<b>text</b>"}',
        '{"round": ' + "9" * 300 + ', "seed": 0, "val_global_accuracy": 0.5}',
        '{"round": 3, "seed": 1e300, "val_global_accuracy": 0.5}',
        '{"round": -1, "seed": true, "val_global_accuracy": true}',
        '{"round": 3, "seed": 0, "trial": 5, "number": 7, "": 1, "\\ud800": 2}',
    ],
    ids=["infinite", "NaN", "deep", "mapping", "text", "late round", "great seed", "truths", "other names"],
)
def test_rows_that_are_no_measurements(copy: Path, row: str) -> None:
    for number in (0, load_run(copy).best or 0):
        bombed(copy, f"{run_folder.trial_folder(number)}/{run_folder.ROUNDS}", row + "\n")
    page = report(copy).read_text()
    data = page.split('id="page-data">')[1].split("</script>")[0]
    assert json.loads(data)["tables"] and "<b>text</b>" not in page
    assert [path.name for path in write_tables(copy, "csv")] == ["trials.csv"]


def npz(path: Path, arrays: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in arrays.items():
            archive.writestr(f"{name}.npy", content)
    return path


def plain(array: np.ndarray) -> bytes:
    out = io.BytesIO()
    np.lib.format.write_array(out, array)
    return out.getvalue()


def test_an_archive_that_is_a_bomb_is_not_unpacked(tmp_path: Path) -> None:
    zeros = np.zeros((300_000, 16, 16), dtype=np.uint8)  # 73 MiB in a file of 0.1
    path = npz(tmp_path / "bomb.npz", {"x": plain(zeros), "y": plain(np.arange(300_000) % 2)})
    del zeros
    tracemalloc.start()
    try:
        with pytest.raises(UserError, match="at most 100 times as large unpacked"):
            own.read_npz(path)
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()


def test_an_array_that_claims_more_than_it_has_is_refused(tmp_path: Path) -> None:
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "|u1", "fortran_order": False, "shape": (10**12, 8, 8)})
    path = npz(tmp_path / "liar.npz", {"x": header.getvalue() + b"\0" * 64, "y": plain(np.arange(4))})
    with pytest.raises(UserError, match="a complete file of plain arrays"):
        own.read_npz(path)


def test_sparse_images_that_are_small_are_read(tmp_path: Path) -> None:
    x = np.zeros((2000, 28, 28), dtype=np.uint8)
    np.savez_compressed(tmp_path / "sparse.npz", x=x, y=np.arange(2000) % 4)
    assert (tmp_path / "sparse.npz").stat().st_size * 100 < x.nbytes
    assert own.read_npz(tmp_path / "sparse.npz").class_names == ("0", "1", "2", "3")
