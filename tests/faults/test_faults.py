"""The campaign's own promises, and its short form. (`make faults` is the long one.)"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.faults import mounts, outcome, table
from tests.faults.__main__ import campaign
from tests.faults.outcome import Done
from tests.faults.registry import EQUAL, REFUSED, Case, Impossible
from tests.faults.scene import Stock
from tests.faults.table import Tried

ROOT = Path(__file__).resolve().parents[2]


def test_the_short_form_is_as_the_table_says() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.faults", "run", "--short", "--seed", "18"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
    )
    # Where the system gives no mount namespace, the full disk of the short form is told as not tried.
    complete = mounts.namespace() is not None
    assert done.returncode == (0 if complete else table.INCOMPLETE), done.stdout + done.stderr
    assert ("not tried" in done.stdout) is not complete
    assert "OTHER" not in done.stdout and max(map(len, done.stdout.splitlines()[1:])) <= table.WIDTH


NO_DISK = "It cannot be tried here: there is no disk."


def a_case(name: str = "a fault", expected: str = EQUAL, **more: object) -> Case:
    return Case(name, "Something is done.", expected, lambda scene: EQUAL, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("got", "code"),
    [
        ((EQUAL, EQUAL), 0),
        ((EQUAL, None), table.INCOMPLETE),
        ((None, None), table.INCOMPLETE),
        ((EQUAL, "hung"), table.OTHERWISE),
        (("hung", None), table.OTHERWISE),
    ],
)
def test_what_was_not_tried_is_never_counted_as_passed(got: tuple[str | None, ...], code: int) -> None:
    tried = [Tried(a_case(f"fault {place}"), one, 1.0, "" if one else NO_DISK) for place, one in enumerate(got)]
    missing = [f"fault {place}" for place, one in enumerate(got) if one is None]
    assert table.code(tried) == code and code in (0, table.INCOMPLETE, table.OTHERWISE)
    assert table.totals(tried).startswith(f"0 of 0 kills, {got.count(EQUAL)} of 2 other faults as expected")
    said = " ".join(table.incomplete(tried).split())
    assert said == (
        f"This campaign is not complete, and shows nothing of {', '.join(missing)}. {NO_DISK}" if missing else ""
    )
    assert all(("not tried" in table.line(one)) is (one.got is None) for one in tried)


def test_a_campaign_with_a_fault_that_cannot_be_made_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def impossible(scene: object) -> str:
        raise Impossible("there is no mount namespace")

    monkeypatch.setattr(Stock, "prepare", lambda self, needs: None)
    made = [a_case("one"), Case("two", "Something is done.", EQUAL, impossible)]
    assert campaign(made, 1) == table.INCOMPLETE
    told = capsys.readouterr().out
    assert "1 of 2 other faults as expected; 1 not tried." in told
    assert "not complete" in told.splitlines()[-2] and "no mount namespace" in " ".join(told.splitlines()[-2:])


SAID = "It cannot be written: the disk is full."


@pytest.mark.parametrize(
    ("code", "err", "other"),
    [
        (2, SAID, None),
        (3, SAID, None),
        (2, f"{SAID}\n{SAID}\n", None),
        (2, f"   2.2 s  loading what draws figures\n{SAID}\n", None),
        (2, "   2.2 s  loading what draws figures\n", "no sentence"),
        (2, "", "no sentence"),
        (2, f"{SAID}\n  File x", "no sentence"),
        (1, SAID, "exit code 1"),
        (0, "", "exit code 0"),
        (None, SAID, "hung"),
        (2, f"Traceback (most recent call last):\n{SAID}", "traceback"),
    ],
)
def test_a_sentence_is_told_from_everything_else(code: int | None, err: str, other: str | None) -> None:
    found = outcome.told(Done(code, "", err))
    assert found is None if other is None else str(found).startswith(other)


def test_whatever_changes_is_seen(tmp_path: Path) -> None:
    (tmp_path / "trials").mkdir()
    for name in ("a", "trials/b", "driver.lock"):
        (tmp_path / name).write_text(name)
    before, done = outcome.state(tmp_path), Done(2, "", SAID)
    (tmp_path / "driver.lock").write_text("another process")
    assert outcome.refused(done, tmp_path, before) == REFUSED
    (tmp_path / "trials" / "b").write_text("c")
    (tmp_path / "a").chmod(0o600)
    (tmp_path / "new").symlink_to("a")
    assert outcome.refused(done, tmp_path, before) == "refused, but changed a, new, trials/b"
    assert outcome.refused(Done(0, "", ""), tmp_path, before).startswith("exit code 0")


def test_equal_is_equal_only_with_nothing_beside_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = [{"number": 0, "attributes": {"rounds": 1, "share": [1, 0]}}, {"number": 1, "attributes": {}}]
    expected = [{"number": 0, "attributes": {"rounds": 1}}, {"number": 1, "attributes": {}}]
    monkeypatch.setattr(outcome, "frozen", lambda run: whole)
    assert outcome.equal(Done(0, "", ""), tmp_path, expected) == EQUAL
    assert outcome.equal(Done(0, "", ""), tmp_path, expected[:1]).startswith("2 of 1 trials")
    assert outcome.equal(Done(0, "", ""), tmp_path, [expected[0], {}]).endswith("another trial 1")
    assert outcome.equal(Done(2, "", SAID), tmp_path, expected) == f"refused: {SAID}"
    assert outcome.equal(Done(None, "", ""), tmp_path, expected) == "hung"
    (tmp_path / ".checkpoint.0.tmp").touch()
    assert outcome.equal(Done(0, "", ""), tmp_path, expected) == "left behind .checkpoint.0.tmp"
