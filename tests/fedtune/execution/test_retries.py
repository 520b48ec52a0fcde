"""What a trial's process died of, and who is to blame where it died again and again."""

from __future__ import annotations

import random
import signal
from pathlib import Path

import pytest

from fedtune.execution import retries
from fedtune.execution.retries import RETRIES, Cause, Death, Retries, cause, crashes, memory_kills
from fedtune.execution.shares import Shares
from fedtune.machine import resources
from fedtune.machine.cluster import Slots
from fedtune.machine.resources import Machine, Share
from fedtune.record.experiment import Placement
from search_spaces import run_folder
from tests import forked
from trainables.worker.job import Ending

#: What Ray 2.60 says of a process that is gone, and of one that it ended for lack of memory.
GONE = (
    "The actor died unexpectedly before finishing this task. Worker exit type: SYSTEM_ERROR Worker exit detail: Worker "
    "unexpectedly exits with a connection error code 2. End of file. Some common causes include: (1) the process was "
    "killed by the OOM killer due to high memory usage, (2) ray stop --force was called, or (3) the worker crashed "
    "unexpectedly due to SIGSEGV or another unexpected error."
)
LOW = "1 worker(s) were killed due to the node running low on memory."
#: A process that tells of its crashes in the file of its first argument, and then does what the second one says.
TELLS = """
import ctypes, os, signal, sys
from trainables.worker.process import tell_crashes
with open(sys.argv[1], "a") as log:
    tell_crashes(log)
    exec(sys.argv[2])
"""


@pytest.mark.parametrize(
    ("said", "crashed", "memory_kill", "of"),
    [
        (GONE, False, False, Cause.OUTSIDE),
        ("", False, False, Cause.OUTSIDE),
        (GONE, True, False, Cause.CRASH),
        (GONE, False, True, Cause.MEMORY),
        (LOW, False, False, Cause.MEMORY),
        (LOW, True, True, Cause.MEMORY),
    ],
)
def test_what_a_process_died_of(said: str, crashed: bool, memory_kill: bool, of: Cause) -> None:
    assert cause(said, crashed=crashed, memory_kill=memory_kill) is of


@pytest.mark.usefixtures("forks")
@pytest.mark.parametrize(
    ("does", "number", "told"),
    [
        ("os.abort()", signal.SIGABRT, 1),
        ("ctypes.string_at(0)", signal.SIGSEGV, 1),
        ("os.kill(os.getpid(), signal.SIGFPE)", signal.SIGFPE, 1),
        ("os.kill(os.getpid(), signal.SIGBUS)", signal.SIGBUS, 0),
        ("os.kill(os.getpid(), signal.SIGILL)", signal.SIGILL, 0),
        ("os.kill(os.getpid(), signal.SIGKILL)", signal.SIGKILL, 0),
        ("os.kill(os.getpid(), signal.SIGTERM)", signal.SIGTERM, 0),
    ],
)
def test_a_crash_is_told_in_the_log(tmp_path: Path, does: str, number: int, told: int) -> None:
    log = tmp_path / "log.txt"
    assert crashes(log) == 0
    log.write_text("Epoch 1: Fatal Python error: Aborted, it says\n")
    done = forked.run(["-c", TELLS, str(log), does], cwd=tmp_path)
    assert done.returncode == -number, done.stderr
    assert crashes(log) == told


@pytest.mark.parametrize(
    ("own", "everywhere", "kills"),
    [
        ("low 0\noom 7\noom_kill 3\n", "oom_kill 9\n", 3),
        ("low 0\n", "pgfault 5\noom_kill 9\n", 9),
        (None, "oom_kill 9\n", 9),
        (None, "oom_kill\n", 0),
        (None, None, 0),
    ],
)
def test_the_system_counts_whom_it_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own: str | None, everywhere: str | None, kills: int
) -> None:
    monkeypatch.setattr(retries, "_GROUPS", tmp_path)
    monkeypatch.setattr(retries, "_ALL", tmp_path / "vmstat")
    monkeypatch.setattr(retries, "_group", lambda: "/a/b")
    (tmp_path / "a/b").mkdir(parents=True)
    if own is not None:
        (tmp_path / "a/b/memory.events").write_text(own)
    if everywhere is not None:
        (tmp_path / "vmstat").write_text(everywhere)
    assert memory_kills() == kills


ABORTED = "Fatal Python error: Aborted\n"


def alone() -> Retries:
    """Trial 4 has all there is."""
    shares = Shares(Placement(None, 1, 1.0, 0.0), [Machine(1, 0)])
    shares.begin(4, None)
    return Retries(shares)


def goes_on(deaths: Retries, died: Death) -> bool:
    """Whether trial 4 does, after that death."""
    return deaths.goes_on(4, Ending("interrupted", died.round, "its process died"), died) is not None


def dies(deaths: Retries, folder: Path, round_: int, said: str = "", log: str = "") -> Death:
    """The process of trial 4 begins, writes so many rounds of two seeds, and dies."""
    deaths.begin(4, folder, 2)
    (folder / run_folder.ROUNDS).write_text("{}\n" * 2 * round_)
    with (folder / run_folder.LOG).open("a") as file:
        file.write(log)
    died = deaths.note(4, said)
    assert died.round == round_
    return died


def test_of_a_trial_that_has_ended_nothing_is_noted_any_more(tmp_path: Path) -> None:
    deaths = alone()
    dies(deaths, tmp_path, 2)
    deaths.end(4)
    assert not deaths._begun and not deaths._found and not deaths._shares._of


@pytest.mark.parametrize(
    ("said", "log", "error"),
    [
        ([LOW] * 3, [""] * 3, "Its process died 3 times for lack of memory, each time after round 2."),
        ([""] * 3, [ABORTED] * 3, "Its process died 3 times by a crash in native code, each time after round 2."),
        (
            [LOW, "", ""],
            ["", ABORTED, ABORTED],
            "Its process died 3 times for lack of memory or by a crash in native code, each time after round 2.",
        ),
    ],
)
def test_what_a_trial_brings_about_is_its_failure(tmp_path: Path, said: list[str], log: list[str], error: str) -> None:
    deaths = alone()
    *earlier, last = [
        goes_on(deaths, dies(deaths, tmp_path, 2, one, other)) for one, other in zip(said, log, strict=True)
    ]
    assert all(earlier) and not last and deaths.is_own_doing(4) and deaths.error(4) == error


@pytest.mark.parametrize(
    ("rounds", "log", "when"),
    [
        ((2, 2, 2), ("", "", ""), "each time after round 2, and nothing says that memory ran out or that it crashed"),
        ((2, 2, 2), (ABORTED, "", ABORTED), "each time after round 2, and nothing says"),
        ((0, 1, 1), (ABORTED, ABORTED, ABORTED), "after the rounds 0, 1 and 1, so it was ended from outside"),
    ],
)
def test_anything_else_ends_the_search(
    tmp_path: Path, rounds: tuple[int, ...], log: tuple[str, ...], when: str
) -> None:
    deaths = alone()
    assert len(rounds) == RETRIES + 1
    *earlier, last = [
        goes_on(deaths, dies(deaths, tmp_path, round_, log=text)) for round_, text in zip(rounds, log, strict=True)
    ]
    assert all(earlier) and not last and not deaths.is_own_doing(4)
    told = deaths.from_outside(4, "fedtune resume runs/a")
    assert told.exit_code == 3 and f"The process of trial 4 died 3 times, {when}" in str(told)
    assert str(told).endswith("no trial was scored by this. Then go on with `fedtune resume runs/a`.")


def test_a_process_that_the_system_ended_for_lack_of_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At the beginning and at the end of each of three processes; the last one ended without such a kill."""
    counts = iter((5, 6, 6, 8, 8, 8))
    monkeypatch.setattr(retries, "memory_kills", lambda: next(counts))
    deaths = alone()
    dies(deaths, tmp_path, 1)
    dies(deaths, tmp_path, 1)
    assert deaths.is_own_doing(4)
    dies(deaths, tmp_path, 1)
    assert not deaths.is_own_doing(4)


def test_with_a_larger_share_it_begins_anew(tmp_path: Path) -> None:
    """What became of a trial with less memory says nothing of it with more."""
    shares = Shares(Placement(None, 2, 1.0, 0.0), [Machine(2, 0)])
    shares.begin(4, None)
    deaths = Retries(shares)
    dies(deaths, tmp_path, 1)
    died = dies(deaths, tmp_path, 1, LOW)
    found = deaths.goes_on(4, Ending("interrupted", 1, "its process died"), died)
    assert found is not None and found.share == Share(2.0, 0.0)
    assert found.told == (
        "Trial 4 stopped after round 1, as the process died for lack of memory; it goes on from its last checkpoint "
        "with 2 cores."
    )
    shares.begin(4, found.share)
    *earlier, last = [goes_on(deaths, dies(deaths, tmp_path, 2, LOW)) for _ in range(RETRIES + 1)]
    assert all(earlier) and not last and deaths.is_own_doing(4)


class Machines:
    """Eight GPUs of two machines, on which trials are placed as Ray does: where the least is left that suffices."""

    def __init__(self) -> None:
        self.free = [4] * 8

    def place(self, quarters: int) -> int | None:
        able = [gpu for gpu in range(8) if self.free[gpu] >= quarters]
        if not able:
            return None
        gpu = min(able, key=lambda gpu: (self.free[gpu], sum(self.free[gpu // 4 * 4 :][:4]), gpu))
        self.free[gpu] -= quarters
        return gpu


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("quarters", [2, 4])
def test_while_one_waits_for_a_larger_share_others_go_on(quarters: int, seed: int) -> None:
    """Trials of 50 to 150 rounds on 32 quarters of GPUs; the first one that ends is put back with a larger share. It
    starts within two trials' time, and until then no more is idle than it is to have."""
    draw, machines = random.Random(seed), Machines()
    shares = Shares(Placement(None, 32, 1.0, 0.25), [Machine(16, 4)] * 2)
    larger = Share(1.0, quarters / 4)
    running: dict[int, tuple[int, int]] = {}  # the end and the GPU, by number
    asked: list[int] = []  # with Ray, that has no place for them yet
    numbers, back, idle = iter(range(10_000)), -1, []
    for now in range(1000):
        for number in [number for number, (end, _) in running.items() if end == now]:
            machines.free[running.pop(number)[1]] += 1
            back = number if back < 0 else back
        waits = back >= 0 and back not in asked
        while len(running) + len(asked) < 32 and shares.room(larger if waits else None, [*running, *asked]):
            number = back if waits else next(numbers)
            shares.begin(number, larger if waits else None)
            asked.append(number)
            waits = False
        for number in list(asked):
            if (gpu := machines.place(quarters if number == back else 1)) is not None:
                asked.remove(number)
                running[number] = now + draw.randint(50, 150), gpu
                shares.started(number)
        if back in running:
            assert now < 350 and max(idle, default=0) <= quarters
            return
        if back >= 0:
            idle.append(sum(machines.free))
    raise AssertionError("it never starts")


def test_nobody_waits_for_ever() -> None:
    """Where others take the room that was kept free, as other searches on the same machines may, they wait at last."""
    shares = Shares(Placement(None, 2, 1.0, 0.0), [Machine(4, 0)])
    shares.begin(0, Share(2.0, 0.0))
    shares.begin(1, None)
    begun = 1
    while shares.room(None, [0, 1]):
        begun += 1
        shares.begin(begun, None)
    assert begun == 4
    shares.started(0)
    assert shares.room(None, [0, 1])


#: Two machines of four GPUs and one of two; H100s have room for eight trials each and T4s for two.
KINDS = [Machine(64, 4, "H100"), Machine(4, 4, "T4"), Machine(16, 2, "T4"), Machine(8, 0)]


def by_kind() -> Shares:
    place = Placement("auto", 40, 1.0, 0.5, by_kind={"H100": 0.125, "T4": 0.5})
    return Shares(place, KINDS, lambda: {"H100": 81559, "T4": 15360})


def test_a_trial_asks_for_what_its_kind_of_gpu_takes() -> None:
    """32 trials have room on the H100s, 4 on the first T4s (of which the cores are short) and 4 on the second. They are
    spread by the part of a kind that is in use, and the next one takes the place that a trial has left."""
    shares, live = by_kind(), list[int]()
    while shares.room(None, live):
        shares.begin(len(live), None, live)
        live.append(len(live))
    assert len(live) == 40
    given = [shares[number] for number in live]
    assert given.count(Share(1.0, 0.125, "H100")) == 32 and given.count(Share(1.0, 0.5, "T4")) == 8
    half = given[:20]
    assert half.count(Share(1.0, 0.125, "H100")) == 16, "half of each kind"
    ended = next(number for number in live if shares[number].kind == "T4")
    live.remove(ended)
    assert shares.room(None, live) and shares.begin(40, None, live) == Share(1.0, 0.5, "T4")
    assert not shares.room(None, [*live, 40])


def test_kinds_that_join_and_leave() -> None:
    shares = by_kind()
    shares.machines = [Machine(16, 2, "A10G"), Machine(16, 1, "H100")]
    live = [0]
    assert shares.begin(0, None, []) == Share(1.0, 0.5, "A10G"), "which was not measured: the largest part of all"
    for number in range(1, 12):
        assert shares.room(None, live)
        shares.begin(number, None, live)
        live.append(number)
    assert not shares.room(None, live)
    shares.machines = []
    assert shares.room(None, []) and shares.begin(12, None, []) == Share(1.0, 0.5), "it waits for a machine of any kind"


def test_what_was_asked_of_a_lost_machine_is_taken_back_where_another_is_there() -> None:
    """Else a trial waits for ever that was asked for on a machine before Ray noticed that it is gone."""
    shares = by_kind()
    waiting = list(range(8))
    for number in waiting:
        shares.begin(number, Share(1.0, 1.0, "T4") if number == 7 else None, waiting[:number])
    on = {kind: [number for number in waiting if shares[number].kind == kind] for kind in ("H100", "T4")}
    assert len(on["H100"]) > 1 < len(on["T4"]) and shares.misplaced(waiting) == []
    shares.machines = KINDS[:1]
    assert shares.misplaced(waiting) == on["T4"] and shares.misplaced(on["H100"]) == []
    shares.machines = KINDS[3:]
    assert shares.misplaced(waiting) == [], "no machine has a GPU: they wait for one"
    shares.machines = [Machine(8, 1, "A10G")]
    assert shares.misplaced(waiting) == waiting
    shares = Shares(Placement("auto", 4, 4.0, 0.0), [Machine(16, 0)])
    shares.begin(0, None)
    shares.begin(1, Share(8.0, 0.0), [0])
    shares.machines = [Machine(4, 0)]
    assert shares.misplaced([0, 1]) == [1], "with all the cores there are now"
    shares.machines = [Machine(2, 0)]
    assert shares.misplaced([0]) == [], "there is no smaller share than the usual one"


def of_bundles(gpus: float = 0.0, *machines: tuple[int, int]) -> Shares:
    """Trials of a quarter of a core on these machines, by their cores and GPUs."""
    shares = Shares(Placement("auto", 100, 0.25, gpus, bundle=4), [Machine(*one) for one in machines])
    room = [(*one, resources.room_on(*one, 0.25, gpus)) for one in machines]
    shares.slots = [Slots(str(place), "", cores, gpus, "", slots) for place, (cores, gpus, slots) in enumerate(room)]
    return shares


def test_a_bundle_is_as_large_as_a_machine_has_room_for() -> None:
    """Of two machines for ten trials and for four: the next process is on one of them."""
    one = resources.of_process([Share(0.25, 0.0)] * 4)
    assert one == Share(1.0, 0.0)
    shares = of_bundles(0.0, (2, 0), (1, 0))
    assert [shares.together(most, []) for most in (1, 3, 4, 8, 20)] == [1, 3, 4, 8, 8]
    assert [shares.together(8, [one] * taken) for taken in (1, 2)] == [8, 4], "beside one that may be on the second"
    assert shares.together(4, [Share(0.5, 0.0), Share(1.0, 0.0)]) == 4
    assert shares.together(4, [Share(2.0, 0.0), Share(0.25, 0.0)]) == 3
    assert shares.together(4, [one] * 3) == 4, "it waits for one to end"
    assert of_bundles(0.0).together(4, []) == 1, "no machine is there"


def test_bundles_on_parts_of_gpus() -> None:
    """Six trials on each of two GPUs, as the third part of a GPU that is left has room for two of a bundle."""
    shares = of_bundles(1 / 6, (8, 2))
    assert shares.processes(100, 4) == 4 and shares.processes(100, 6) == 2 and shares.processes(100, 1) == 12
    assert shares.processes(7, 4) == 3, "a whole GPU's six trials in two, and the seventh"
    four = resources.of_process([Share(0.25, 1 / 6)] * 4)
    assert four == Share(1.0, pytest.approx(4 / 6)) and resources.of_process([Share(0.25, 1 / 6)] * 7).gpus == 1.0
    assert [shares.together(4, [four] * taken) for taken in (1, 2)] == [4, 2]


def test_processes_of_bundles_on_several_machines() -> None:
    shares = of_bundles(0.0, (2, 0), (1, 0), (0, 0))
    assert [shares.processes(100, bundle) for bundle in (1, 3, 4, 8, 100)] == [12, 3 + 2, 3, 2, 2]
    assert [shares.processes(trials, 4) for trials in (1, 5, 9)] == [1, 2, 3]
    assert of_bundles(0.0).processes(100, 4) == 1, "it waits for a machine"


def test_a_bundle_that_no_machine_has_room_for_any_more_is_taken_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else it waits for ever, though there is a machine for each of its trials."""
    shares = of_bundles(0.0, (2, 0), (1, 0))
    whole = resources.of_process([shares.begin(number, None) for number in range(8)])
    waiting, held = {"bundle": tuple(range(8))}, {"bundle": whole}
    assert shares.lost(waiting, held, "again") == []
    shares.slots, shares.machines = shares.slots[1:], shares.machines[1:]
    assert shares.lost(waiting, held, "again") == ["bundle"] and shares.together(8, []) == 4
    shares.slots, shares.machines = [], []
    assert shares.lost(waiting, held, "again") == [], "it waits for a machine"


def test_it_is_counted_how_long_no_machine_has_room(monkeypatch: pytest.MonkeyPatch) -> None:
    now, slots = [100.0], [Slots("a", "", 8, 1, "T4", 2)]
    monkeypatch.setattr("fedtune.execution.shares.time.monotonic", lambda: now[0])
    monkeypatch.setattr("fedtune.machine.cluster.slot_map", lambda *given: list(slots))
    shares = by_kind()
    found = []
    for seconds, there in ((0, 0), (10, 0), (20, 2), (30, 2), (40, 0), (43, 0), (50, 0), (60, 1)):
        now[0], slots[0] = 100.0 + seconds, slots[0]._replace(slots=there)
        shares.count()
        found.append(shares.without_room)
    assert found == [0, 10, 0, 0, 10, 10, 20, 0]


def test_for_lack_of_memory_it_goes_from_its_kinds_share_to_a_whole_card_and_a_larger_one() -> None:
    shares = by_kind()
    shares.begin(0, None, [])
    shares.begin(1, None, [0])
    assert (shares[0].kind, shares[1].kind) == ("H100", "T4")
    then = []
    while (larger := shares.more(1, shares[1].kind)) is not None:
        assert shares.room(larger, [0])
        then.append(shares.begin(1, larger, [0]))
    assert then == [Share(1.0, 1.0, "T4"), Share(1.0, 1.0, "H100")]
    others = [0, 1]  # beside it three H100s and a part of the fourth are left
    for number in range(2, 100):
        if not shares.room(None, others):
            break
        shares.begin(number, None, others)
        others.append(number)
    shares.started(1)
    while shares.room(None, others):
        number = len(others)
        shares.begin(number, None, others)
        others.append(number)
    kinds = [shares[number] for number in others]
    assert kinds.count(Share(1.0, 0.125, "H100")) == 24 and kinds.count(Share(1.0, 0.5, "T4")) == 8
