"""What a round is measured by, declared once: name, direction, title, unit.

Searches minimise or maximise by `direction`; figures and tables take titles and units from here.
A metric with `validation=True` has a twin `val_<name>` computed on the validation share, on which searches select.

A metric of a user's own (`trainables.own_metrics`) is declared by whoever first meets it in a process: a request that
names its file, a trial that measures it, or a record, which holds its declaration, so that a report needs no file.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from search_spaces.errors import Shown, UserError, sentence


@dataclass(frozen=True)
class Metric:
    """One number per round and seed."""

    name: str
    direction: Literal["maximize", "minimize"]
    title: str
    doc: str
    unit: str = ""
    validation: bool = False
    #: Numbers that depend on the machine and not on the seed; two equal runs may differ in these only.
    timing: bool = False
    #: The parameter that must be above 0 for this to be measured at all.
    needs: str = ""
    #: Measured of the method's global model; a method without one never has it.
    of_global_model: bool = False
    #: What it takes to reach a target: null in every round before that, and censored where it is never reached. See
    #: `UNREACHED`.
    to_target: bool = False
    #: A user's own.
    own: bool = False


_DECLARED = (
    Metric(
        "global_accuracy",
        "maximize",
        "Global accuracy",
        "The server's global model on the whole test set.",
        validation=True,
        of_global_model=True,
    ),
    Metric(
        "local_accuracy",
        "maximize",
        "Local accuracy",
        "Each client's model after local training (or fine-tuning, where a method measures that) on its even share of "
        "the test set, weighted by client size.",
        validation=True,
    ),
    Metric(
        "global_loss",
        "minimize",
        "Global loss",
        "Cross-entropy of the global model on the test set.",
        "nats",
        validation=True,
        of_global_model=True,
    ),
    Metric(
        "amp",
        "maximize",
        "AMP",
        "Average model performance: the global model on every client's own label mix, weighted by client size.",
        validation=True,
        of_global_model=True,
    ),
    Metric(
        "fm",
        "minimize",
        "FM",
        "Fairness: variance over clients of the global model's accuracy on their own label mix.",
        validation=True,
        of_global_model=True,
    ),
    Metric(
        "wlp",
        "maximize",
        "WLP",
        "Worst local performance: the lowest of those accuracies.",
        validation=True,
        of_global_model=True,
    ),
    Metric(
        "g_acc_virtual",
        "maximize",
        "Virtual global accuracy",
        "An average of the round's complete local models on the whole test set; it is made for this measurement "
        "alone, before the server computes anything.",
        validation=True,
    ),
    Metric(
        "p_acc",
        "maximize",
        "Personal accuracy",
        "Clients' own models on their own test samples, pooled; needs client_test_fraction above 0.",
        validation=True,
        needs="client_test_fraction",
    ),
    Metric(
        "p_acc_global",
        "maximize",
        "Global accuracy on clients' tests",
        "The global model on all clients' own test samples, pooled; needs client_test_fraction above 0.",
        validation=True,
        needs="client_test_fraction",
        of_global_model=True,
    ),
    Metric(
        "rounds_to_target",
        "minimize",
        "Rounds to target",
        "First round in which target_metric reaches target; none while it has not. Needs target above 0.",
        "rounds",
        validation=True,
        needs="target",
        to_target=True,
    ),
    Metric(
        "bytes_to_target",
        "minimize",
        "Bytes to target",
        "Sent up and down in all rounds until target_metric reaches target; none while it has not. Needs target above "
        "0.",
        "bytes",
        validation=True,
        needs="target",
        to_target=True,
    ),
    Metric(
        "gd_loss",
        "minimize",
        "G+D loss",
        "Cross-entropy of clients' classifiers on their own generators' features after local training.",
        "nats",
    ),
    Metric(
        "psnr",
        "minimize",
        "PSNR",
        "How close the images that a deep-leakage attack rebuilds come to the clients' own; low is private. Needs "
        "attack_images above 0.",
        "dB",
        needs="attack_images",
    ),
    Metric("train_loss", "minimize", "Training loss", "Mean local training loss of the round's clients.", "nats"),
    Metric("bytes_up", "minimize", "Bytes up", "Sent by the round's clients to the server.", "bytes"),
    Metric("bytes_down", "minimize", "Bytes down", "Sent by the server to the round's clients.", "bytes"),
    Metric(
        "seconds_client", "minimize", "Client seconds", "Local training of all the round's clients.", "s", timing=True
    ),
    Metric("seconds_server", "minimize", "Server seconds", "Aggregation and server-side work.", "s", timing=True),
    Metric("seconds_evaluation", "minimize", "Evaluation seconds", "Measuring the models.", "s", timing=True),
    Metric("seconds", "minimize", "Round seconds", "The whole round.", "s", timing=True),
)

#: Parts of the traffic a method may have counted separately.
TRAFFIC = {"pma": "personal models", "gme": "the global model", "peers": "other clients' models"}

#: Models that clients may have beside the one that local accuracy measures.
LOCAL_MODELS = {"shared": "the shared model"}
_OF_LOCAL_MODELS = ("local_accuracy", "p_acc")

#: Readouts a method may give beside its main global model, and what is measured of each.
READOUTS = {"aca": "ACA", "oca": "OCA"}
_OF_READOUTS = ("global_accuracy", "amp", "fm", "wlp")

_ALL = (
    *_DECLARED,
    *(
        replace(m, name=f"{prefix}_{m.name}", title=f"{m.title} of {title}")
        for prefix, title in READOUTS.items()
        for m in _DECLARED
        if m.name in _OF_READOUTS
    ),
    *(
        replace(
            m,
            name=f"{prefix}_{m.name}",
            title=f"{m.title} of {title}",
            doc=f"As {m.name}, of {title} as each client's own training leaves it.",
        )
        for prefix, title in LOCAL_MODELS.items()
        for m in _DECLARED
        if m.name in _OF_LOCAL_MODELS
    ),
    *(
        replace(m, name=f"{m.name}_{part}", title=f"{m.title} for {title}", doc=f"{m.doc[:-1]}, for {title} alone.")
        for part, title in TRAFFIC.items()
        for m in _DECLARED
        if m.name in ("bytes_up", "bytes_down")
    ),
)

METRICS: dict[str, Metric] = {m.name: m for m in _ALL} | {
    f"val_{m.name}": replace(m, name=f"val_{m.name}", title=f"{m.title} (validation)", validation=False)
    for m in _ALL
    if m.validation
}

#: Shares between 0 and 1.
SHARES = {
    n
    for n in METRICS
    if n.removeprefix("val_").removeprefix("aca_").removeprefix("oca_").removeprefix("shared_")
    in {"global_accuracy", "local_accuracy", "amp", "wlp", "g_acc_virtual", "p_acc", "p_acc_global"}
}

#: What the unit of a user's own metric is where it lies between 0 and 1 and is told in per cent.
SHARE = "share"
#: How the name of a metric says on which data and of which models it is measured.
STARTS = ("val_", "test_", "local_")
DIRECTIONS = ("maximize", "minimize")


def declare(name: str, direction: str, title: str, unit: str, where: str = "") -> None:
    """Makes a user's own metric known: as `name`, of the global model, as `local_<name>`, of clients' own models, and
    their twins. Raises `UserError` where another metric has the name."""
    if direction not in DIRECTIONS:
        raise UserError(sentence(f"{name}.direction", "maximize or minimize", direction, where))
    made = Metric(
        name,
        "maximize" if direction == "maximize" else "minimize",
        title,
        "A metric of your own: the global model on the whole test set.",
        "" if unit == SHARE else unit,
        validation=True,
        of_global_model=True,
        own=True,
    )
    local = replace(
        made,
        name=f"local_{name}",
        title=f"{title} of clients",
        doc="The same of each client's model on its even share of the test set, weighted by client size.",
        of_global_model=False,
    )
    new = {one.name: one for one in (made, local)}
    new |= {
        f"val_{one.name}": replace(one, name=f"val_{one.name}", title=f"{one.title} (validation)", validation=False)
        for one in (made, local)
    }
    taken = [METRICS[key] for key, one in new.items() if key in METRICS and METRICS[key] != one]
    reserved = name.startswith((*STARTS, *(f"{start}_" for start in (*READOUTS, *LOCAL_MODELS))))
    if taken or reserved or (name in METRICS and (name in SHARES) != (unit == SHARE)):
        must = "a name that no metric has, and that does not begin like val_, test_ or local_"
        got = name if not taken or not taken[0].own else Shown(f"{name}, declared otherwise before")
        raise UserError(sentence("A metric of your own", must, got, where))
    METRICS.update(new)
    if unit == SHARE:
        SHARES.update(new)


def declarations(names: Iterable[str]) -> dict[str, dict[str, str]]:
    """What a record holds of those of these metrics that are a user's own: how they are declared, by plain name."""
    found = {}
    for name in names:
        known = METRICS.get(plain(name))
        if known is not None and known.own:
            unit = SHARE if known.name in SHARES else known.unit
            found[known.name] = {"direction": known.direction, "title": known.title, "unit": unit}
    return found


def take(recorded: Mapping[str, Mapping[str, str]], where: str) -> None:
    """Declares what a record says of a user's own metrics (`declarations`)."""
    for name, said in recorded.items():
        declare(name, said["direction"], said["title"], said["unit"], where)


def plain(name: str) -> str:
    """A metric's name without what says on which data and of which models it is measured."""
    for start in STARTS:
        name = name.removeprefix(start)
    return name


#: What stands for a target that was not reached where a number is needed: in a study and in early stopping, so that
#: every configuration that reaches it is better. It is no measurement: no mean, estimate, figure or front reads it.
UNREACHED = 1e100


def waits(name: str) -> bool:
    """Whether null is no fault in this metric: a target was not reached yet."""
    return name in METRICS and METRICS[name].to_target


def is_unreached(value: float) -> bool:
    """Whether a value is that of a target that was not reached, or a mean over seeds of which one did not reach it."""
    return abs(value) >= UNREACHED / 1e6


def twin(name: str) -> str:
    """The test metric of a validation metric and the other way round; the name itself where there is no twin."""
    other = name.removeprefix("val_") if name.startswith("val_") else f"val_{name}"
    return other if other in METRICS else name
