"""What a user can ask for: every option of every command, declared once.

A class is what one command asks for, and a field of it one option. Options that several commands have are declared in a
class that these inherit, or as a type that their fields have; where their defaults differ, the class of the command
declares the field again. From here follow the command line, the signatures of `fedtune.search` and its like, and the
checks of every option by itself (`fedtune.option`). A field without an `Option` is for Python alone.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from fedtune.option import Argument, Asked, Option
from search_spaces import own_files

MAX_SEED = 999_999
MAX_SEEDS = 1000
MAX_TRIALS = 1_000_000
#: Up to so many slots trials see one another in the fixed order unless told otherwise, and above by arrival. Where
#: trials differ tenfold in length, the fixed order keeps two slots 89 % busy and eight 51 % (docs/proposals.md).
FIXED_UP_TO = 2
#: Of slots: measured before the search begins.
AUTO: Literal["auto"] = "auto"

Sampler = Literal["ei", "tpe", "random", "grid", "gp", "nsga2"]
Scheduler = Literal["asha", "median", "none"]
Order = Literal["fixed", "arrival"]

Run = Annotated[str | Path, Argument(help="A run directory.", complete="runs")]
RunOrMirror = Annotated[
    str | Path, Argument(help="A run directory, or the URI of its mirror (--storage).", complete="runs")
]
AsJson = Annotated[bool, Option(help="Print the result as JSON, and no progress.", group="where", flags=("--json",))]
Long = Annotated[bool, Option(help="Print everything, not a line each.", group="where")]
DryRun = Annotated[bool, Option(help="Show the plan and an estimate of its time; create nothing.", group="where")]
Dataset = Annotated[
    str | Path | Any | None,
    Option(help="A data set's name, a folder of images, an .npz file, or a .csv or .parquet table.", group="what"),
]
OrderOfTrials = Annotated[
    Order | None,
    Option(
        help="Which earlier trials a proposal uses. arrival: all that have ended by then. fixed: given ones, so the "
        "same seed and slots give the same trials, but slots wait for one another.",
        group="how",
        default=f"fixed up to {FIXED_UP_TO} slots, arrival above",
    ),
]
Seed = Annotated[
    int,
    Option(
        help="The seed of the search. The same seed gives the same record on the same kind of machine, with more "
        f"than {FIXED_UP_TO} slots only with --order fixed.",
        group="how",
        low=0,
        high=MAX_SEED,
    ),
]
Slots = Annotated[
    int | None,
    Option(
        help="How many trials run at the same time, if there is room for them.",
        group="where",
        default="one per core, or per share of a GPU",
    ),
]
By = Annotated[
    Sequence[str],
    Option(
        help="In a pivot table: a column per value of this parameter, such as omega; may be given more than once.",
        group="how",
        default="the conditions that a run varies",
    ),
]
StorageThen = Annotated[
    str | None,
    Option(help="Keep a mirror of the run's folder there from now on, such as s3://bucket/runs/mine.", group="where"),
]
Variant = Annotated[
    Sequence[str], Option(help="In a pivot table: a row per value of this searched parameter.", group="how")
]
Brackets = Annotated[str | None, Option(help="In a pivot table: also this metric, in brackets.", group="how")]


@dataclass(frozen=True, kw_only=True)
class Files(Asked):
    """Where the files of data sets are that are known by name."""

    #: The only folder in which they are looked for. (On the command line: the environment variable FEDTUNE_DATA.)
    data_dir: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        named = self.data_dir or os.environ.get("FEDTUNE_DATA")
        object.__setattr__(self, "data_dir", None if named is None else str(named))


@dataclass(frozen=True, kw_only=True)
class Setting(Files):
    """The federation that is trained, and its data."""

    space: Annotated[
        str | Any,
        Option(
            help="A named search space (`fedtune spaces METHOD`), or a .yaml file.", group="what", complete="spaces"
        ),
    ] = "default"
    dataset: Dataset = None
    label: Annotated[
        str | None, Option(help="Of a table: the column that holds the classes.", group="what", by_set=True)
    ] = None
    client: Annotated[
        str | None, Option(help="Of a table: the column that says whose row it is.", group="what", by_set=True)
    ] = None
    #: A network's name, `FILE.py:CLASS`, or its class. (On the command line: `--set model=…`.)
    model: Any = None
    #: Metrics of the user's own beside those that are selected by, `FILE.py:FUNCTION`. (`--set own_metrics=…`.)
    own_metrics: Sequence[str] = ()
    samples: Annotated[
        str | None,
        Option(help="What an .npz file of two dimensions holds: vectors or tokens.", group="what", by_set=True),
    ] = None
    resize: Annotated[
        str | None, Option(help="Bring a folder's images to this size, such as 32 or 32x24.", group="what", by_set=True)
    ] = None
    set: Annotated[
        Mapping[str, object] | Sequence[str],
        Option(
            help="Fix the value of any parameter; may be given more than once. Also: label=COLUMN, client=COLUMN (of a "
            "table), samples=tokens (.npz), resize=32 (images of a folder), keep_images=true (of generators), "
            "storage=URI (a mirror of the run).",
            group="what",
            value="NAME=VALUE",
        ),
    ] = ()


@dataclass(frozen=True, kw_only=True)
class Paper(Asked):
    """The profile of values that a space offers."""

    paper: Annotated[
        bool, Option(help="The paper's data set, model, rounds and seeds instead of the small profile.", group="what")
    ] = False


@dataclass(frozen=True, kw_only=True)
class Requirements(Asked):
    """What a configuration must keep."""

    require: Annotated[
        Sequence[str],
        Option(
            help="What a configuration must satisfy to be selected, such as wlp>=0.3 or bytes_up<=5e7; may be given "
            "more than once.",
            group="what",
            value="METRIC>=NUMBER",
        ),
    ] = ()


@dataclass(frozen=True, kw_only=True)
class Share(Asked):
    """The part of the machine that each trial has."""

    per_trial: Annotated[
        Mapping[str, float] | str | None,
        Option(
            help="What each trial gets: cores (one thread for each) and a part of a GPU; and how many trials share a "
            "process (bundle).",
            group="where",
            default="cpus=1, gpus=0.25 where there is a GPU",
            value="cpus=N,gpus=N,bundle=N",
            amounts=("cpus", "gpus", "bundle"),
        ),
    ] = None

    @property
    def cpus_per_trial(self) -> float | None:
        """The cores that are asked for; None is the default."""
        return self.per_trial.get("cpus") if isinstance(self.per_trial, Mapping) else None

    @property
    def gpus_per_trial(self) -> float | None:
        """The part of a GPU that is asked for; None is the default."""
        return self.per_trial.get("gpus") if isinstance(self.per_trial, Mapping) else None

    @property
    def bundle(self) -> float:
        """How many trials are to share a process."""
        return self.per_trial.get("bundle", 1) if isinstance(self.per_trial, Mapping) else 1


@dataclass(frozen=True, kw_only=True)
class Cluster(Asked):
    """Another machine that trials may run on."""

    address: Annotated[
        str | None, Option(help="The HOST:PORT of a running Ray cluster to join, or auto.", group="where")
    ] = None


@dataclass(frozen=True, kw_only=True)
class Versions(Asked):
    """What a run that goes on need not have as it began."""

    other_versions: Annotated[
        bool,
        Option(
            help="Go on although versions of libraries, or files of your own, have changed since the run began; its "
            "record names both.",
            group="where",
        ),
    ] = False


@dataclass(frozen=True, kw_only=True)
class Folder(Asked):
    """Where a run is recorded."""

    name: Annotated[
        str | Path | None,
        Option(
            help="The run's name, for a folder in runs/; or the path of the folder, such as /disk/mine.",
            group="where",
            default="METHOD-SPACE",
        ),
    ] = None


@dataclass(frozen=True, kw_only=True)
class Mirrored(Asked):
    """Where a second copy of what is made is kept."""

    storage: Annotated[
        str | None,
        Option(
            help="Keep a mirror of the run's folder there while it runs, such as s3://bucket/runs/mine.",
            group="where",
            by_set=True,
            taken=True,
        ),
    ] = None


@dataclass(frozen=True, kw_only=True)
class Kept(Mirrored):
    """What a run keeps besides its numbers."""

    keep_images: Annotated[
        bool,
        Option(
            help="Keep images of the method's generator at every evaluated round, the mean training image of every "
            "class and, of a data set known by name, a few test images of it; the report shows them.",
            group="what",
            by_set=True,
        ),
    ] = False


@dataclass(frozen=True, kw_only=True)
class Progress(Asked):
    """What is shown while trials run."""

    runs_trials = True
    #: Lines of text where a terminal or a notebook would redraw what it shows. (On the command line: `TERM=dumb`.)
    plain: bool = False
    #: Nothing. (On the command line: `--json`.)
    quiet: bool = False
    #: In place of a federation: what a trial yields, for tests.
    simulate: Callable[..., Any] | None = None


def own_samplers() -> dict[str, Path]:
    """The samplers of a user's own (`fedtune.decisions.own_sampler`), by the names of the files that FEDTUNE_SAMPLERS
    lists, separated as in PATH."""
    return {path.stem: path for path in own_files.listed("FEDTUNE_SAMPLERS")}


@dataclass(frozen=True)
class SearchRequest(Progress, Kept, Folder, Cluster, Share, Requirements, Paper, Setting):
    """What `fedtune search` is asked for; None stands for the value of the space's profile, or else for the default."""

    method: Annotated[
        str | Any, Argument(help="The method to tune; `fedtune methods` lists all methods.", complete="methods")
    ]
    _: KW_ONLY
    metric: Annotated[
        Sequence[str | Any],
        Option(
            help="The metric to select by, on validation data; test_NAME selects on test data, FILE.py:FUNCTION is one "
            "of your own. May be given more than once.",
            group="what",
            default="val_global_accuracy",
            complete="selectable",
        ),
    ] = ()
    log: Annotated[
        str | None,
        Option(
            help="Also log every trial while it runs: tensorboard, mlflow or wandb, separated by commas.",
            group="where",
            by_set=True,
            taken=True,
        ),
    ] = None
    when_done: Annotated[
        str | None,
        Option(help="A command that is run when the search has ended.", group="where", by_set=True, taken=True),
    ] = None
    trials: Annotated[
        int | None,
        Option(
            help="How many trials. From 10 on, the last fifth is for further seeds of the configurations that may be "
            "the best; with --no-confirm it tries new ones.",
            group="how long",
            default="the profile's number, or 30",
            low=1,
            high=MAX_TRIALS,
        ),
    ] = None
    confirm: Annotated[
        bool | None,
        Option(
            help="End with further seeds for the configurations that may be the best.",
            group="how long",
            default="true from 10 trials on, unless it is a race or a grid, or there are several metrics, conditions "
            "or seeds",
            flags=("--confirm/--no-confirm",),
            by_set=True,
        ),
    ] = None
    rounds: Annotated[int | None, Option(help="Communication rounds per trial.", group="how long")] = None
    time: Annotated[
        str | float | None,
        Option(
            help="Wall-clock budget, such as 30m or 2h; the search ends when it is spent, even if trials are left.",
            group="how long",
        ),
    ] = None
    seeds: Annotated[
        int | None,
        Option(
            help="Seeds per configuration: at most this many in a race, exactly this many with --no-race.",
            group="how long",
            default="the profile's number, or 1",
            low=1,
            high=MAX_SEEDS,
        ),
    ] = None
    race: Annotated[
        bool | None,
        Option(
            help="Begin every configuration with one seed, and give further seeds to the promising ones; the budget is "
            "trials × rounds × seeds.",
            group="how long",
            default="--race if --seeds is above 1, but not for a grid, several metrics or conditions",
            flags=("--race/--no-race",),
        ),
    ] = None
    sampler: Annotated[
        Sampler | None,
        Option(
            help="What proposes configurations.",
            group="how",
            default="ei; tpe for several metrics",
            more=own_samplers,
        ),
    ] = None
    scheduler: Annotated[
        Scheduler | None, Option(help="What stops trials early.", group="how", default="asha; none for a grid")
    ] = None
    warm_start: Annotated[
        str | Path | Sequence[str | Path],
        Option(
            help="Begin with the best points of an earlier run, and with its results if they hold; may be given more "
            "than once. none: do not even learn the noise from runs in the same folder.",
            group="how",
            value="RUN",
            complete="runs",
        ),
    ] = ()
    order: OrderOfTrials = None
    seed: Seed = 0
    slots: Annotated[
        int | Literal["auto"] | None,
        Option(
            help="How many trials run at the same time, if there is room for them; auto first measures, on each kind "
            "of GPU, which number, and how many threads, finish most trials per hour.",
            group="where",
            default="one per core, or per share of a GPU",
        ),
    ] = None


@dataclass(frozen=True)
class AutoRequest(Progress, Mirrored, Folder, Cluster, Share, Requirements, Setting):
    """What `fedtune auto` is asked for; None stands for the default."""

    dataset: Dataset = None
    _: KW_ONLY
    budget: Annotated[
        str,
        Option(
            help="The budget of everything: a time such as 30m or 2h, a count such as 600rounds (rounds of single "
            "federations), or traffic such as 2GB.",
            group="how long",
        ),
    ]
    methods: Annotated[
        Sequence[str],
        Option(
            help="Names of methods, or parts of names of families, such as personalised, separated by commas.",
            group="what",
            default="all that the budget pays for",
        ),
    ] = ("all",)
    space: Annotated[
        str,
        Option(
            help="The name of the space in which each method is tuned. Any but default also sets the conditions.",
            group="what",
        ),
    ] = "default"
    metric: Annotated[
        str | Any | None,
        Option(help="The metric to select by.", group="what", default="val_global_accuracy", complete="metrics"),
    ] = None
    no_label_counts: Annotated[
        bool, Option(help="Leave out methods to which clients send label counts.", group="what")
    ] = False
    max_bytes_up: Annotated[
        str | None,
        Option(help="Leave out methods whose clients send more than this in a round, such as 50MB.", group="what"),
    ] = None
    equal: Annotated[bool, Option(help="Give every method an equal part of the budget.", group="how")] = False
    least: Annotated[
        int | None,
        Option(
            help="Trials that every method gets at least.",
            group="how",
            default="3, or fewer if the budget does not pay for them",
            low=1,
            high=1000,
        ),
    ] = None
    rounds: Annotated[int | None, Option(help="Communication rounds per trial.", group="how long", default="10")] = None
    seeds: Annotated[
        int, Option(help="How many seeds every trial has.", group="how long", low=1, high=MAX_SEEDS // 2)
    ] = 1
    fresh_seeds: Annotated[
        int | None,
        Option(
            help="Seeds on which the best configurations of the methods are compared.",
            group="how long",
            default="2, up to 10 for those that cannot be told apart",
            low=1,
            high=MAX_SEEDS // 2,
        ),
    ] = None
    final_seeds: Annotated[
        int | None,
        Option(
            help="Further seeds on which the leader is trained.",
            group="how long",
            default="3, or fewer if half of the budget does not pay for them",
            low=1,
            high=MAX_SEEDS // 2,
        ),
    ] = None
    set: Annotated[
        Mapping[str, object] | Sequence[str],
        Option(
            help="Fix the value of a parameter for all methods that have it, or of one method as METHOD.NAME=VALUE; "
            "may be given more than once. label=COLUMN, client=COLUMN, samples=tokens and resize=32 are as in a "
            "search.",
            group="what",
            value="NAME=VALUE",
        ),
    ] = ()
    slots: Slots = None
    seed: Seed = 0
    order: OrderOfTrials = None
    name: Annotated[
        str | Path,
        Option(help="The name of the folder of results, in runs/; or its path.", group="where"),
    ] = "auto"


@dataclass(frozen=True)
class RunRequest(Progress, Kept, Folder, Cluster, Share, Paper, Setting):
    """What `fedtune run` is asked for."""

    best: Annotated[
        str | Path,
        Argument(
            help="A configuration written by `fedtune export`, the run directory of a search, whose winner is "
            "trained, or a method's name.",
            complete="methods_and_runs",
        ),
    ]
    _: KW_ONLY
    space: Annotated[
        str,
        Option(
            help="For a method: the search space whose fixed values and profile are used.",
            group="what",
            complete="spaces",
        ),
    ] = "default"
    paper: Annotated[
        bool, Option(help="For a method: use the paper's profile instead of the small one.", group="what")
    ] = False
    rounds: Annotated[
        int | None,
        Option(help="How many rounds to train.", group="how long", default="as the configuration says"),
    ] = None
    seeds: Annotated[int, Option(help="How many fresh seeds to train on.", group="how long", low=1, high=MAX_SEEDS)] = 3
    seed: Annotated[
        int,
        Option(
            help="The fresh seeds are drawn from this number; another number gives other seeds.",
            group="how",
            low=0,
            high=MAX_SEED,
        ),
    ] = 0
    name: Annotated[
        str | Path | None,
        Option(
            help="The run's name, for a folder in runs/; or the path of the folder, such as /disk/mine.",
            group="where",
            default="the name of the search or method, and -final",
        ),
    ] = None
    slots: Slots = None

    @property
    def method(self) -> str:
        """What is trained: a method's name, an exported file's path, or a run directory."""
        return str(self.best)


@dataclass(frozen=True)
class ReproduceRequest(Progress, Files):
    """What `fedtune reproduce` is asked for; None stands for what the reproduction declares."""

    name: Annotated[
        str,
        Argument(help="The figure or table. Without it, all are listed.", complete="reproductions", optional=True),
    ]
    _: KW_ONLY
    rows: Annotated[
        Sequence[str],
        Option(
            help="Only these rows of a table, separated by commas; others can be added later.",
            group="what",
            default="all",
        ),
    ] = ()
    columns: Annotated[
        Sequence[str],
        Option(
            help="Only these columns, such as omega=1,0.1; may be given more than once.", group="what", default="all"
        ),
    ] = ()
    small: Annotated[
        bool, Option(help="On the embedded digits, in minutes, instead of the paper's setting.", group="what")
    ] = False
    rounds: Annotated[
        int | None,
        Option(
            help="Communication rounds.",
            group="how long",
            default="the small form's, or the paper's",
            low=1,
            high=1_000_000,
        ),
    ] = None
    seeds: Annotated[
        int | None,
        Option(help="Seeds.", group="how long", default="the small form's, or the paper's", low=1, high=MAX_SEEDS),
    ] = None
    dataset: Annotated[
        str | None,
        Option(
            help="Another data set: of the paper, or your own.",
            group="what",
            default="the paper's first; digits with --small",
        ),
    ] = None
    runs_dir: Annotated[str, Option(help="Where the folder of the figure or table is made.", group="where")] = "runs"
    slots: Slots = None
    storage: Annotated[
        str | None,
        Option(
            help="Keep a mirror of the folder there while it runs, such as s3://bucket/fedkf-table5-small.",
            group="where",
        ),
    ] = None


@dataclass(frozen=True)
class ResumeRequest(Progress, Versions, Cluster, Share):
    """What `fedtune resume` is asked for; None stands for what the run began with."""

    run: RunOrMirror
    _: KW_ONLY
    storage: StorageThen = None
    time: Annotated[
        str | float | None, Option(help="A new wall-clock budget, such as 30m or 2h.", group="how long")
    ] = None
    slots: Annotated[
        int | None,
        Option(help="How many trials run at the same time.", group="where", default="as the run began"),
    ] = None
    per_trial: Annotated[
        Mapping[str, float] | str | None,
        Option(
            help="What each trial has: cores, and the part of a GPU.",
            group="where",
            default="as the run began",
            value="cpus=N,gpus=N",
            amounts=("cpus", "gpus"),
        ),
    ] = None


@dataclass(frozen=True)
class ExtendRequest(Progress, Versions, Cluster):
    """What `fedtune extend` is asked for."""

    run: Run
    _: KW_ONLY
    storage: StorageThen = None
    trials: Annotated[
        int | None,
        Option(
            help="How many trials to add. A race gets the rounds of so many whole trials as a further budget.",
            group="how long",
        ),
    ] = None
    rounds: Annotated[
        int | None,
        Option(
            help="How many rounds to add to every trial. Trials that ran all their rounds go on from their "
            "checkpoints; those that were stopped early stay stopped.",
            group="how long",
        ),
    ] = None


@dataclass(frozen=True)
class AttackRequest(Progress, Files):
    """What `fedtune attack` is asked for."""

    runs_trials = False
    target: Annotated[
        str | Path,
        Argument(
            help="A run directory, a file written by `fedtune export`, or a method's name.",
            complete="methods_and_runs",
            value="CONFIG_OR_RUN",
        ),
    ]
    _: KW_ONLY
    images: Annotated[
        int,
        Option(
            help="How many images to attack, from as many different clients as there are.",
            group="what",
            low=1,
            high=1000,
        ),
    ] = 4
    steps: Annotated[
        int | None,
        Option(
            help="Outer L-BFGS iterations per image.",
            group="how long",
            default="attack_steps of the configuration",
            low=1,
            high=10_000,
        ),
    ] = None
    private: Annotated[
        Literal["random", "searched"] | None,
        Option(
            help="What the attacker uses for a part of the model that is not uploaded: random weights, or weights that "
            "it searches too.",
            group="how",
            default="attack_private of the configuration",
            kind="choice of --private",
        ),
    ] = None
    trial: Annotated[
        int | None, Option(help="For a run: the number of the trial.", group="what", default="the best")
    ] = None
    seed: Annotated[
        int | None,
        Option(
            help="The seed of images, weights and noise.",
            group="how",
            default="the run's first seed",
            low=0,
            high=MAX_SEED,
        ),
    ] = None
    output: Annotated[
        str | Path | None,
        Option(
            help="The .png file for the picture; the page is written beside it.",
            group="where",
            default="RUN/attack.png",
            flags=("--output", "-o"),
        ),
    ] = None


@dataclass(frozen=True)
class ExportRequest(Asked):
    """What `fedtune export` is asked for."""

    runs: Annotated[
        str | Path | Sequence[str | Path],
        Argument(help="A run directory; with --table several, whose curves become one table.", complete="runs"),
    ]
    output: Annotated[
        str | Path | None,
        Option(
            help="The .yaml or .json file to write. Without it, the configuration is printed.",
            group="where",
            flags=("--output", "-o"),
        ),
    ] = None
    _: KW_ONLY
    trial: Annotated[int | None, Option(help="A trial's number.", group="what", default="the best")] = None
    where: Annotated[
        Sequence[str],
        Option(
            help="For a run under several conditions: the condition, as name=value; may be given more than once.",
            group="what",
        ),
    ] = ()
    table: Annotated[
        str | Path | None,
        Option(
            help="Write the learning curves of all trials to this .npz file instead, with a card beside it.",
            group="where",
        ),
    ] = None
    study: Annotated[
        str | Path | None,
        Option(help="Write all trials to this .db file instead, as an Optuna study.", group="where"),
    ] = None


@dataclass(frozen=True)
class FigureRequest(Asked):
    """What `fedtune figure` is asked for."""

    name: Annotated[
        str,
        Argument(help="The figure or table: heatmap, curves, trials, pivot and others.", complete="figures"),
    ]
    runs: Annotated[str | Path | Sequence[str | Path], Argument(help="A run directory, or several.", complete="runs")]
    output: Annotated[str | Path | None, Option(help="The file to write.", group="where", flags=("--output", "-o"))] = (
        None
    )
    _: KW_ONLY
    kind: Annotated[
        str | None,
        Option(
            help="png, svg, pdf or html; for a table also csv, tex or md.",
            group="where",
            default="the suffix of -o",
            flags=("--format",),
        ),
    ] = None
    where: Annotated[
        Mapping[str, object] | Sequence[str],
        Option(help="The condition that is drawn, as name=value; may be given more than once.", group="what"),
    ] = ()
    metric: Annotated[
        Sequence[str],
        Option(
            help="For rounds, factor, spread or pivot: a metric to show; may be given more than once.",
            group="what",
            default="accuracies; for pivot what the first run selected on",
            complete="metrics",
        ),
    ] = ()
    by: By = ()
    variant: Variant = ()
    down: Annotated[
        Sequence[str],
        Option(
            help="In a pivot table: which of method, metric and the conditions label the rows; may be given more than "
            "once. The others label the columns of one table.",
            group="how",
            default="method, a table per metric",
        ),
    ] = ()
    brackets: Brackets = None


@dataclass(frozen=True)
class ReportRequest(Asked):
    """What `fedtune report` is asked for."""

    runs: Annotated[
        Sequence[str], Argument(help="A run directory. Several are also compared on the page.", complete="runs")
    ]
    _: KW_ONLY
    output: Annotated[
        str | None,
        Option(help="Where to write the page.", group="where", default="RUN/report.html", flags=("--output", "-o")),
    ] = None
    csv: Annotated[bool, Option(help="Also write RUN/trials.csv.", group="where")] = False
    latex: Annotated[bool, Option(help="Also write RUN/trials.tex (booktabs).", group="where")] = False
    images: Annotated[
        str | None, Option(help="Also write every figure to RUN/figures as png, svg or pdf.", group="where")
    ] = None
    anonymous: Annotated[
        bool, Option(help="Leave the machine's name and system, the command, and paths out of the page.", group="where")
    ] = False
    show: Annotated[bool, Option(help="Open the page in the browser.", group="where", flags=("--open",))] = False
    watch: Annotated[
        bool,
        Option(
            help="Serve the page on this machine's loopback address instead, and follow the run, until Ctrl-C.",
            group="where",
        ),
    ] = False
    port: Annotated[int | None, Option(help="With --watch: the port.", group="where", default="a free one")] = None


@dataclass(frozen=True)
class CompareRequest(Asked):
    """What `fedtune compare` is asked for."""

    runs: Annotated[
        Sequence[str], Argument(help="Run directories; the others are tested against the first.", complete="runs")
    ]
    _: KW_ONLY
    metric: Annotated[
        Sequence[str],
        Option(
            help="The metric to compare; may be given more than once.",
            group="what",
            default="global_accuracy, local_accuracy; with --by, what the first run selected on",
            complete="metrics",
        ),
    ] = ()
    by: By = ()
    variant: Variant = ()
    where: Annotated[
        Sequence[str], Option(help="In a pivot table: only trials with this value, as name=value.", group="what")
    ] = ()
    brackets: Brackets = None
    readout: Annotated[
        str, Option(help="Compare the value of the `last` round, or of the `best` round.", group="how")
    ] = "last"
    figure: Annotated[
        str | None, Option(help="Also write this HTML file, with figures of all runs and the tables.", group="where")
    ] = None
    csv: Annotated[str | None, Option(help="Write the result to this CSV file; `-` prints it.", group="where")] = None
    latex: Annotated[
        str | None, Option(help="Write LaTeX tables (booktabs) to this file; `-` prints them.", group="where")
    ] = None
    markdown: Annotated[
        str | None, Option(help="With --by: write Markdown tables to this file; `-` prints them.", group="where")
    ] = None
