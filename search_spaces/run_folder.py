"""The run directory: names of its files and of their fields. `fedtune.record.run_directory` writes it, `analysis.runs`
reads it.

    runs/<name>/
      experiment.yaml      the frozen request; all that is needed to repeat the run
      space.json           what is searched (declared parameters with symbols, bounds, grids), which conditions of the
                           experiment are varied (`vary`), and what is fixed
      provenance.json      versions, git revision, machine, device, command line, when
      driver.lock          held by the process that drives the run
      .session-<hex>       while it is driven: read by every trial, to know that it sees this directory
      report.html          where `fedtune report` puts it
      attack.npz           what `fedtune attack RUN` found, beside its pictures attack.png and .html: `original` and
                           `recovered` (uint8, (n, ch, H, W)), `psnr` (dB), `label` and `client` of each of n images,
                           and `trial`
      tensorboard/, mlflow.db, mlflow/, wandb/    with --log: what that program reads (`fedtune.execution.trackers`)
      mirror.json          only in a mirror (`--storage`, `fedtune.record.mirror`): when something was sent last, as
                           `sent`, and whether it holds all files of the run directory, as `whole`; of several runs also
                           `journals`, how many bytes of each study.journal were sent together
      study.journal        the Optuna study, one operation in a line: trials, states, parameters, the objective by
                           round, user attributes. `optuna.load_study` reads it through a `JournalStorage`
      trials/0007/
        config.yaml        every parameter of this trial by key, searched and fixed
        partition.json     {"<seed>": [[samples of class c at client i]]}, plus "hash" per seed, the "dataset"'s hash,
                           and the names of "classes" and "clients" (of these none where clients are drawn)
        rounds.jsonl       one line per round and seed (see below)
        checkpoint         a complete round, all seeds. When the trial has ended it is the last one where the trial may
                           go on with more rounds (`fedtune extend --rounds`), else the word `ended`
        states-<number>    what clients keep from round to round, of a method that has such: written once each, and
                           listed by the checkpoint (`trainables.simulation.client_files`); of a trial that has ended
                           one file, where it may go on
        log.txt            what the trial printed, and tracebacks
        confusion.json     final runs only: {"<seed>": {"round": the last one, "test": [[samples of class i that the
                           global model takes for class j]], "validation": the same of that share}}
        model-<seed>.safetensors, .json    final runs only: the global model of the seed's best round and its card
        clients-<seed>.safetensors, .json  the same of the clients' own models, each as it was measured last up to that
                                           round (`trainables.zoo`)
        images-<seed>-<round>.npz, images-<seed>-data.npz    with keep_images: see `search_spaces.kept_images`

A line of `rounds.jsonl` is {"round": 1.., "seed": int, <metric>: number or null, ...} with the metrics of
`search_spaces.metrics` plus two lists over clients, `client_accuracy` (global model on the client's label mix) and
`local_accuracies` (null for clients that did not train); of more than a hundred clients these are texts
(`search_spaces.client_columns`). A metric that was not measured this round (`eval_every`,
`eval_test`) is absent; one that is not finite is null. What a parameter that is `auto` meant stands beside them:
`precision`, `executor` where clients were not trained one after the other, and `server_executor` where the steps of the
server were recorded. A reader skips a last line without newline and keeps the last of two lines for one (round, seed).

`provenance.json` names the method as people write it (`method_title`), and what decides the last digits of numbers:
`versions` and the `machine`'s `processor`, `instructions` (those PyTorch uses) and `gpu`. Where a run went on with
others than it began with, `continued` lists them, each with `created`, `versions`, `git`, `method_file` and `machine`.
`method_file` names a method that is a user's own file: `method`, `file` and the content's `hash`; `model_file` a model
that is one: `model`, `file`, `hash`;
`sampler_file` a sampler that is one (FEDTUNE_SAMPLERS), in the same way.
`extended` lists what `fedtune extend` did, each with `created`, `command`, and `trials` or `rounds` as [before, after].
`slots` lists the machines of a cluster, or of several GPUs the one, on which trials had room: `host`, `address`,
`cores`, `gpus`, `gpu` (their kind) and `slots` (for how many trials at once).
That of a search begun with --slots auto also holds `packing`: what was measured of one configuration (`table`:
trials at once, threads of each, seconds per round, trials per hour, peak MiB of one trial's process and of its GPU) and
what was chosen; on a cluster all of it of each kind of machine, in `kinds`, with the `host` where it was measured.

User attributes of a study's trial: `stop_reason` (one of `STOP_REASONS`), `rounds` (rounds run), `seconds` (in rounds,
over all sessions), `share` ([cores, GPUs] that it went on with after having run out of memory, and the kind of GPU
where it must be one with more memory), `error` (one sentence,
where stop_reason is error or diverged), `seed` (final runs and races: the trial's own), `of` (races: the first trial
of the same configuration, of which this one is a further seed), `went_on` (the round after which a trial had ended that
goes on since `fedtune extend --rounds`),
`place` (trials of `fedtune auto`: the trial's place among those of all methods), `began` and `ended` (trials of
`fedtune auto --budget TIME`: what the clock that runs while the command does showed then, in seconds),
`from` (where the values of a trial come from that was not proposed by the sampler: "the paper's values"
or the run and trial they were taken from) and `curve` (several objectives only, for which Optuna keeps no values per
round: JSON {"<round>": [value per objective]}, written when the trial ends). Optuna states: COMPLETE, PRUNED
(early-stopped), FAIL (error, diverged), RUNNING (live or to be resumed).

Where conditions of the experiment are varied, a trial's parameters in the study are its configuration and its
condition, and `datasets` of `provenance.json` holds the hash of every data set by its name, if these are varied.

The first `taken` trials of an experiment are results of earlier runs: they have a folder like any other trial, without
checkpoint and log, and `taken` of `provenance.json` lists what they were computed with, as [{"run", "trials": numbers
here, "created", "versions", "git", "machine"}].

`fedtune auto` makes a folder of such runs:

    runs/<name>/
      auto.yaml            the frozen request: methods with the cost of their rounds, budget, what was left out and why
      driver.lock          as in a run
      report.html          as in a run
      search/<method>/     every method's search, a run directory
      best/<method>.yaml   every method's best configuration, as `fedtune export` writes it
      fresh/<method>/      that configuration on fresh seeds, a run directory
      final/<method>/      the leader on further seeds, a run directory, with its models

and `fedtune reproduce` another one:

    runs/<name>/
      reproduction.yaml    the frozen request: which figure or table of a paper, on which data, rounds, seeds
      driver.lock          as in a run
      cells/<cell>/        every cell of a table, or the whole grid of a heat map, a run directory
      report.html          ours beside the paper's, and what became of its claims
      verdicts.csv         a line for each comparison behind a claim
      numbers.csv          a line for each number of the paper and ours
      table.tex, .md, .csv of a table: ours in the paper's layout

Metrics stand in `rounds.jsonl`, whatever became of the trial: it is written first, by the trial itself, so it is there
for a trial that runs, was stopped, failed, or whose driver was killed before the study was told. Of these the study
holds the objectives by round as well, by which trials are proposed, stopped and chosen; the two are not compared.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path

from search_spaces import leftovers

VERSION = 1

EXPERIMENT = "experiment.yaml"
SPACE = "space.json"
PROVENANCE = "provenance.json"
STUDY = "study.journal"
TRIALS = "trials"
CONFIG = "config.yaml"
PARTITION = "partition.json"
CONFUSION = "confusion.json"
ROUNDS = "rounds.jsonl"
CHECKPOINT = "checkpoint"
#: What a checkpoint holds in place of a state once its trial has ended and cannot go on.
OVER = b"ended\n"
#: How names of files begin that hold what clients keep; a number follows.
STATES = "states-"
LOG = "log.txt"
REPORT = "report.html"
LOCK = "driver.lock"
ATTACK = "attack.npz"
#: Where trials may be told too (`--log`), and the database of one of these.
TRACKERS = ("tensorboard", "mlflow", "wandb")
MLFLOW = "mlflow.db"

#: What the trial of the declared defaults says of where its values come from (attribute `from`).
PAPER = "the paper's values"
#: The attribute of a trial that is a further seed: the first trial of its configuration.
OF = "of"
#: The attribute of a further seed that confirms: it belongs to the last part of its search.
CONFIRMS = "confirms"
#: The attribute of a trial that goes on since `fedtune extend --rounds`: the round after which it had ended before.
WENT_ON = "went_on"
#: The attribute of a trial of `fedtune auto`: its place among the trials of all methods.
PLACE = "place"
#: Attributes of a trial of `fedtune auto` with a budget by the clock: readings of it when the trial began and ended.
BEGAN, ENDED = "began", "ended"
#: What a trial sees of the others (`order` of an experiment): those with certain numbers, or those that have ended.
FIXED, ARRIVAL = "fixed", "arrival"
#: The attribute of a trial whose search goes by arrival: the places of the trials before it that ran when it was
#: proposed, so that it saw all others; and the rounds that each of these had by then, where the sampler looked at them.
BESIDE, BESIDE_ROUNDS = "beside", "beside_rounds"

#: In the folder of `fedtune auto`: its record and the folders with the runs that belong to it (see below).
AUTO = "auto.yaml"
SEARCHES = "search"
BEST = "best"
FRESH = "fresh"
FINAL = "final"

#: In the folder of `fedtune reproduce`: its record, the folder of its runs, and what is written about them.
REPRODUCTION = "reproduction.yaml"
CELLS = "cells"
VERDICTS = "verdicts.csv"
NUMBERS = "numbers.csv"
#: The table of a reproduction, by the format of its file.
TABLES = {"tex": "table.tex", "md": "table.md", "csv": "table.csv"}
#: The commands that make a folder of several runs, by the file that says so.
SEVERAL = {AUTO: "auto", REPRODUCTION: "reproduce"}
#: What a reproduction writes anew whenever it is decided.
WRITTEN = (REPORT, VERDICTS, NUMBERS, *TABLES.values())

#: completed: ran all its rounds. scheduler: early-stopped. diverged: a metric or
#: loss stopped being finite. error: raised. interrupted: to be resumed.
STOP_REASONS = ("completed", "scheduler", "diverged", "error", "interrupted")


def made_by(folder: Path) -> str | None:
    """The command that made this folder of several runs; None where it is none."""
    return next((command for file, command in SEVERAL.items() if os.path.isfile(folder / file)), None)


def has_ended(folder: Path) -> bool:
    """Whether the checkpoint in a trial's folder says that the trial has ended and cannot go on."""
    path = folder / CHECKPOINT
    try:
        return path.lstat().st_size == len(OVER) and not path.is_symlink() and path.read_bytes() == OVER
    except FileNotFoundError:
        return False


def is_states(name: str) -> bool:
    """Whether a file of this name holds what clients keep."""
    return name.startswith(STATES) and name.removeprefix(STATES).isdecimal() and name.isascii()


def number_of_states(name: str) -> int:
    """The number of a file that holds what clients keep."""
    return int(name.removeprefix(STATES))


def states(folder: Path) -> list[Path]:
    """The files in a trial's folder that hold what clients keep, in the order in which they were written."""
    try:
        found = [path for path in folder.iterdir() if is_states(path.name)]
    except FileNotFoundError:
        found = []
    return sorted(found, key=lambda path: number_of_states(path.name))


def remove_states(folder: Path, needed: Collection[str] = ()) -> None:
    """Removes what clients kept from a trial's folder, but for the files that are `needed`; also what a killed process
    left under temporary names."""
    leftovers.clear(folder, is_states)
    for path in states(folder):
        if path.name not in needed:
            path.unlink(missing_ok=True)


def trial_folder(number: int) -> str:
    """`trials/0007`, relative to the run directory."""
    return f"{TRIALS}/{number:04d}"
