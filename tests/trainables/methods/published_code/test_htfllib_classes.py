"""FD, FedProto, FedGH and FedTGP against HtFLlib's: two architectures that share what they say of classes."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from tests.trainables.methods.published_code.mixed import (
    ClientLoss,
    Rows,
    afterwards,
    agrees_but_for,
    along,
    batches,
    htfllib,
    owners_mean,
    replaced,
    trained,
)
from tests.trainables.methods.replays.actual import World, assert_equal, assert_step, client_state, unpacked
from tests.trainables.methods.replays.networks import CLASSES, head
from tests.trainables.methods.replays.plain import Params, gradients, watched
from tests.trainables.methods.replays.test_replay_dhf import by_name
from tests.trainables.methods.replays.test_replay_prototypes import COHORTS, first_models, orders

#: HtFLlib's own steps that no setting gives, and what then differs first.
FD = {"reports along the steps": "upload of 2", "reports of this round alone": "sent to 0"}
PROTO = {"reports along the steps": "prototypes of 2", "prototypes of this round alone": "prototypes after round 3"}
GH = {"without the incomplete batch": "upload of 2"}
TGP = GH | {"of the model before training": "upload of 2"}


@pytest.mark.parametrize("theirs", [None, *FD])
def test_fd(theirs: str | None, toy: Path) -> None:
    """system/flcore/clients/clientfd.py at 17f851e and servers/serverfd.py at 67a9519.

    exclude_own is off. A sample of a class without mean logits is taught by its own ones, whose cross-entropy has no
    gradient. In the loop on purpose: a client reports once, of its trained model, and a report counts until the next
    one."""
    fd = htfllib("feddistill", toy, gamma=1.3, exclude_own=False)
    with agrees_but_for(theirs, FD):
        replay_fd(fd, theirs)


def replay_fd(fd: World, theirs: str | None) -> None:
    own, reports, known = first_models(fd), dict[int, Rows](), Rows()
    for played in fd.play((*COHORTS, (0, 3))):

        def loss(p: Params, found: Tensor, logits: Tensor, y: Tensor, now: Rows = known) -> Tensor:
            taught = 1.3 * F.cross_entropy(logits, replaced(logits, y, now).softmax(dim=1)) if now else 0.0
            return F.cross_entropy(logits, y) + taught

        if theirs == "reports of this round alone":
            reports = {}
        for i, result in played.results.items():
            assert_equal(unpacked("logits", played.payloads[i]), by_name(known), f"sent to {i}", 1e-2)
            start = own[i]
            own[i], steps = trained(fd, played, i, start, loss)
            assert_step(client_state(result).model, own[i], start, f"model of {i}")
            said = theirs == "reports along the steps"
            reports[i] = along(steps, "logits") if said else afterwards(fd, i, own[i], "logits")
            assert_equal(unpacked("logits", result.upload), by_name(reports[i]), f"upload of {i}", 1e-2)
        known = owners_mean(list(reports.values()))


@pytest.mark.parametrize("theirs", [None, *PROTO])
def test_fedproto(theirs: str | None, toy: Path) -> None:
    """system/flcore/clients/clientproto.py at 686ed4d and servers/serverproto.py at c252798.

    weighting is owners, proto_norm is mse; a sample of a class without a prototype is at its own place. In the loop on
    purpose: a client reports once, of its trained model, and a class that nobody reports keeps its prototype."""
    proto = htfllib("fedproto", toy, **{"lambda": 1.7}, weighting="owners", proto_norm="mse")
    with agrees_but_for(theirs, PROTO):
        replay_fedproto(proto, theirs)


def replay_fedproto(proto: World, theirs: str | None) -> None:
    own, known = first_models(proto), Rows()
    for played in proto.play((*COHORTS, (2, 3))):  # nobody reports class 2 in round 3
        reports = []
        for i, result in played.results.items():
            assert_equal(unpacked("prototype", played.payloads[i]), by_name(known), f"sent to {i}", 1e-2)
            start = own[i]
            own[i], steps = trained(proto, played, i, start, near(known, 1.7))
            assert_step(client_state(result).model, own[i], start, f"model of {i}")
            said = theirs == "reports along the steps"
            reports.append(along(steps, "features") if said else afterwards(proto, i, own[i], "features"))
            assert_equal(unpacked("prototype", result.upload), by_name(reports[-1]), f"prototypes of {i}", 1e-2)
        known = ({} if theirs == "prototypes of this round alone" else known) | owners_mean(reports)
        assert_equal(by_name(played.after.prototypes), by_name(known), f"prototypes after round {played.number}", 1e-2)


def near(known: Rows, weight: float) -> ClientLoss:
    """FedProto's and FedTGP's loss: cross-entropy, and the mean square between features and known prototypes."""

    def loss(p: Params, found: Tensor, logits: Tensor, y: Tensor) -> Tensor:
        apart = weight * F.mse_loss(replaced(found, y, known), found) if known else 0.0
        return F.cross_entropy(logits, y) + apart

    return loss


@pytest.mark.parametrize("theirs", [None, *GH])
def test_fedgh(theirs: str | None, toy: Path) -> None:
    """system/flcore/clients/clientgh.py at 686ed4d and servers/servergh.py at c252798.

    server_batch_size is batch_size. The first header is that of client 0's model. In the loop on purpose: prototypes
    are of all of a client's samples."""
    gh = htfllib("fedgh", toy, server_lr=0.3, server_epochs=3, batch_size=8, server_batch_size=8)
    with agrees_but_for(theirs, GH):
        replay_fedgh(gh, theirs)


def replay_fedgh(gh: World, theirs: str | None) -> None:
    own = first_models(gh)
    header = {name: value for name, value in own[0].items() if name.startswith("head.")}
    for played in gh.play(COHORTS):
        pairs: list[tuple[Tensor, int]] = []
        own = {i: model | header for i, model in own.items()}
        for i, result in played.results.items():
            assert_equal(unpacked("head", played.payloads[i]), header, f"header sent to {i}")
            start = own[i]
            own[i], _ = trained(gh, played, i, start, lambda p, found, logits, y: F.cross_entropy(logits, y))
            assert_step(result.model or {}, own[i], start, f"model of {i}")
            used = batches(gh, played, i) if theirs == "without the incomplete batch" else ()
            report = afterwards(gh, i, own[i], "features", used)
            assert_equal(unpacked("prototype", result.upload), by_name(report), f"upload of {i}", 1e-2)
            pairs += report_pairs(report)
        before = header
        for places in orders(gh, played, len(pairs)):
            rows, labels = (torch.stack([torch.as_tensor(pairs[k][part]) for k in places]) for part in (0, 1))
            here = watched(header)
            found = gradients(F.cross_entropy(head(here, rows), labels), here)
            header = {name: value - 0.3 * found[name] for name, value in header.items()}
        assert_step(played.after.head, header, before, f"header after round {played.number}")


def report_pairs(report: Rows) -> list[tuple[Tensor, int]]:
    """A client's prototypes with their classes, as they come to the server's loader."""
    return [(report[j], j) for j in sorted(report)]


@pytest.mark.parametrize(("theirs", "cap"), [(None, 100.0), (None, 0.01), *((name, 100.0) for name in TGP)])
def test_fedtgp(theirs: str | None, cap: float, toy: Path) -> None:
    """system/flcore/clients/clienttgp.py at 5732b10 and servers/servertgp.py at 43b4ff7.

    server_lr is lr, server_batch_size is batch_size. In the loop on purpose: prototypes are of the trained model, where
    HtFLlib loads the one that was saved before the training, and of all of a client's samples."""
    values = {"lr": 0.05, "server_lr": 0.05, "server_epochs": 3, "batch_size": 8, "server_batch_size": 8}
    tgp = htfllib("fedtgp", toy, **values, **{"lambda": 1.2}, margin_cap=cap)
    with agrees_but_for(theirs, TGP):
        replay_fedtgp(tgp, cap, theirs)


def replay_fedtgp(tgp: World, cap: float, theirs: str | None) -> None:
    own, made, known = first_models(tgp), dict(tgp.start.network), Rows()
    for played in tgp.play(COHORTS):
        reports = []
        for i, result in played.results.items():
            assert_equal(unpacked("prototype", played.payloads[i]), by_name(known), f"sent to {i}", 1e-2)
            start = own[i]
            own[i], _ = trained(tgp, played, i, start, near(known, 1.2))
            assert_step(client_state(result).model, own[i], start, f"model of {i}")
            used = batches(tgp, played, i) if theirs == "without the incomplete batch" else ()
            model = start if theirs == "of the model before training" else own[i]
            reports.append(afterwards(tgp, i, model, "features", used))
            assert_equal(unpacked("prototype", result.upload), by_name(reports[-1]), f"upload of {i}", 1e-2)
        margin = min(largest_gap(owners_mean(reports)), cap)
        assert (margin == cap) is (cap < 1)
        pairs, before = [pair for report in reports for pair in report_pairs(report)], made
        for places in orders(tgp, played, len(pairs)):
            rows, labels = (torch.stack([torch.as_tensor(pairs[k][part]) for k in places]) for part in (0, 1))
            here = watched(made)
            centres = generated(here)
            squares = (rows**2).sum(dim=1, keepdim=True) - 2 * rows @ centres.T + (centres**2).sum(dim=1)[None]
            apart = squares.sqrt() + F.one_hot(labels, CLASSES) * margin
            found = gradients(F.cross_entropy(-apart, labels), here)
            made = {name: value - 0.05 * found[name] for name, value in made.items()}
        assert_step(played.after.network, made, before, f"e and F after round {played.number}")
        known = dict(enumerate(generated(made)))


def generated(p: Params) -> Tensor:
    """The prototypes of all classes: embedding, linear, ReLU, linear."""
    hidden = F.relu(F.linear(p["embeddings.weight"], p["layers.0.weight"], p["layers.0.bias"]))
    return F.linear(hidden, p["layers.2.weight"], p["layers.2.bias"])


def largest_gap(means: Rows) -> float:
    """The largest of the classes' distances to the nearest other class; an absent class has the smallest of them."""
    gap = torch.full((CLASSES,), 1e9)
    for j in means:
        for k in means:
            if j > k:
                apart = torch.norm(means[j] - means[k])
                gap[j], gap[k] = torch.minimum(gap[j], apart), torch.minimum(gap[k], apart)
    gap[gap > 1e8] = gap.min()
    return float(gap.max())
