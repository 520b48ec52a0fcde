"""Wrong steps that each replay has to notice: a correct equation fed the wrong thing. `make mutants` makes them all.

A mutant is a piece of a file under `trainables` and what is written in its place. Pieces are short, so that moving or
rewrapping code leaves most of them valid; one that is no longer found exactly once is reported.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class WrongStep:
    """`old` becomes `new`, in the only file named `file` that has it. `test` is the replay that must then fail."""

    what: str
    test: str
    file: str
    old: str
    new: str

    @property
    def node(self) -> str:
        """The replay as pytest names it."""
        name, _, case = self.test.partition("::")
        return f"tests/trainables/methods/replays/test_replay_{name}.py::{case}"


#: The replay of every method, `file::test`; where a method has several, one.
REPLAYS = {
    "dense": "dense::test_dense[fedrolex]",
    "dfrd": "dfrd::test_dfrd[fedavg]",
    "dhf": "dhf::test_dhf[always]",
    "ditto": "adapted::test_ditto[0]",
    "fedadam": "servers::test_adaptive_servers[fedadam]",
    "fedamp": "models::test_fedamp",
    "fedavg": "averages::test_fedavg[skip]",
    "fedavgm": "servers::test_fedavgm",
    "fedbabu": "adapted::test_fedbabu[head-full]",
    "fedcg": "fedcg::test_fedcg[kd]",
    "feddistill": "prototypes::test_feddistill[True]",
    "feddropout": "submodels::test_methods_with_submodels[feddropout]",
    "fedfomo": "models::test_fedfomo[start]",
    "fedftg": "fedftg::test_fedftg[fedavg]",
    "fedgen": "fedgen::test_fedgen[full]",
    "fedgh": "prototypes::test_fedgh",
    "fedgkd": "averages::test_fedgkd[average-True-teacher_first]",
    "fedkd": "mutual::test_fedkd",
    "fedkf": "fedkf::test_fedkf[oca]",
    "fedmdcg": "fedmdcg::test_fedmdcg[kdc]",
    "fednova": "servers::test_fednova[0.5]",
    "fedper": "personal::test_personal_models[fedper]",
    "fedproto": "prototypes::test_fedproto[samples-mse-prototypes]",
    "fedphp": "models::test_fedphp[mmd]",
    "fedprox": "averages::test_fedprox",
    "fedrod": "adapted::test_fedrod",
    "fedrolex": "submodels::test_methods_with_submodels[fedrolex]",
    "fedyogi": "servers::test_adaptive_servers[fedyogi]",
    "fedtgp": "prototypes::test_fedtgp[0.01]",
    "fml": "mutual::test_fml",
    "heterofl": "submodels::test_methods_with_submodels[heterofl]",
    "lgfedavg": "personal::test_personal_models[lgfedavg]",
    "local": "personal::test_personal_models[local]",
    "moon": "drift::test_moon",
    "perfedavg": "adapted::test_perfedavg[fo]",
    "qffl": "averages::test_qffl",
    "scaffold": "drift::test_scaffold",
}

#: By replay and file: what is wrong, the piece, what is written in its place.
_TABLE = {
    ("dfrd::test_dfrd[fedavg]", "dfrd.py"): [
        ("α is not applied in the distillation", "config.alpha * kd_kl(", "kd_kl("),
        (
            "the averaged generator's images come from the current one",
            "synthesise(averaged,",
            "synthesise(phases.generator,",
        ),
        ("τ is given to the wrong clients", "labels.weights.to(", "labels.weights.roll(1, 0).to("),
        ("labels are uniform instead of p(y)", "labels.probabilities", "torch.ones(fed.classes)"),
        (
            "the student is compared on other images than the teachers'",
            "phases.student(batch.seen), ensemble",
            "phases.student(batch.images.flip(0)), ensemble",
        ),
    ],
    ("dfrd::test_dfrd[fedavg]", "server_distillation.py"): [
        ("the generator is in training mode while distilling", "self.generator.eval()", "self.generator.train()"),
    ],
    ("dfrd::test_dfrd[fedrolex]", "dfrd.py"): [
        (
            "the moving average starts from the new generator",
            "ema = moving_average(ema, take(",
            "ema = moving_average(take(phases.generator), take(",
        ),
    ],
    ("dfrd::test_dfrd[fedrolex]", "distillation_bases.py"): [
        (
            "the base averages with the next round's windows",
            "channels(fed, now, client)",
            "channels(fed, now + 1, client)",
        ),
    ],
    ("dfrd::test_dfrd[fedrolex]", "server_distillation.py"): [
        (
            "images are not mapped to the data set's normalisation for models",
            "to_models(self.config, self.fed, images)",
            "images",
        ),
    ],
    ("fedmdcg::test_fedmdcg[kdc]", "fedmdcg.py"): [
        ("λ₂ is dropped where the weights are built", "factor * config.lambda2", "0.0"),
        (
            "free labels are uniform instead of p(y)",
            "torch.multinomial(self.probabilities,",
            "torch.multinomial(torch.ones_like(self.probabilities),",
        ),
        (
            "the server's labels are uniform instead of p(y)",
            "labels.weights, labels.probabilities, rng",
            "labels.weights, torch.ones(fed.classes), rng",
        ),
        (
            "the frozen global generator is in training mode",
            '"frozen", config.noise_dim).eval()',
            '"frozen", config.noise_dim).train()',
        ),
        ("every round starts the client's Adam anew", "put_state(adam, generator, client_state.adam)", "pass"),
        (
            "the client trains the global generator instead of its own",
            "on(fed.device, client_state.generator)",
            "on(fed.device, initial_generator(fed, config.noise_dim))",
        ),
    ],
    ("fedmdcg::test_fedmdcg[kdc]", "generator_aggregation.py"): [
        ("kdc weighs clients alike", "tau[:, y], config", "torch.full_like(tau, 1 / len(uploads))[:, y], config"),
        ("kdc's τ is given to the wrong clients", "tau[:, y], config", "tau.roll(1, 0)[:, y], config"),
    ],
    ("fedmdcg::test_fedmdcg[kd]", "generator_aggregation.py"): [
        ("kd weighs clients alike", "/ sum(sizes)", "* 0 + 1 / len(sizes)"),
    ],
    ("fedcg::test_fedcg[kd]", "fedcg.py"): [
        (
            "real and generated features are swapped",
            "discriminator_loss(critic(features), critic(made.detach()))",
            "discriminator_loss(critic(made.detach()), critic(features))",
        ),
        (
            "the discriminator starts anew every round",
            "on(fed.device, client_state.discriminator)",
            "take(discriminator(fed, 'initial'))",
        ),
    ],
    ("fedcg::test_fedcg[kd]", "generator_aggregation.py"): [
        ("kd weighs clients alike", "/ sum(sizes)", "* 0 + 1 / len(sizes)"),
    ],
    ("fedcg::test_fedcg[kdc]", "generator_aggregation.py"): [
        ("kdc weighs clients alike", "tau[:, y], config", "torch.full_like(tau, 1 / len(uploads))[:, y], config"),
    ],
    ("fedcg::test_fedcg[kdc]", "fedcg.py"): [
        (
            "kdc's labels are uniform instead of p(y)",
            "labels.weights, labels.probabilities, rng",
            "labels.weights, torch.ones(fed.classes), rng",
        ),
        (
            "the frozen global generator is in training mode",
            '"frozen", config.noise_dim).eval()',
            '"frozen", config.noise_dim).train()',
        ),
    ],
    ("fedgen::test_fedgen[full]", "fedgen.py"): [
        (
            "the server weighs clients alike for every label",
            "found.weights.to(",
            "torch.full_like(found.weights, 1 / len(uploads)).to(",
        ),
        ("τ is given to the wrong clients", "found.weights.to(", "found.weights.roll(1, 0).to("),
        ("labels that nobody has are drawn as well", "(found.probabilities > 0)", "(found.probabilities >= 0)"),
        ("the guiding generator is in training mode", "(config.gen_hidden,)).eval()", "(config.gen_hidden,)).train()"),
        ("every round starts the generator's Adam anew", "put_state(adam, generator, state.adam)", "pass"),
    ],
    ("fedgen::test_fedgen[head]", "fedgen.py"): [
        (
            "the teachers' logits are averaged with equal shares",
            "sizes / sizes.sum()",
            "torch.ones_like(sizes) / len(sizes)",
        ),
        (
            "clients' labels are uniform instead of p(y)",
            "torch.multinomial(self.probabilities,",
            "torch.multinomial(torch.ones_like(self.probabilities),",
        ),
    ],
    ("fedgen::test_fedgen[mixed]", "fedgen.py"): [
        (
            "the generator is taught by the head that was sent",
            'put_head(head, unpack("model", upload.payload))',
            "put_head(head, state.model)",
        ),
    ],
    ("submodels::test_methods_with_submodels[fedrolex]", "partial_training.py"): [
        (
            "FedRolex averages with the next round's windows",
            "channels(config, fed, now, client)",
            "channels(config, fed, now + 1, client)",
        ),
        (
            "FedRolex cuts with the last round's windows",
            "channels(config, fed, state.round + 1, client)",
            "channels(config, fed, state.round, client)",
        ),
    ],
    ("submodels::test_methods_with_submodels[heterofl]", "partial_training.py"): [
        ("HeteroFL trains without the scaler", "scaler=config.scaler", "scaler=False"),
        ("HeteroFL weighs clients by size though asked not to", 'config.agg_weight == "samples"', "True"),
    ],
    ("submodels::test_methods_with_submodels[feddropout]", "partial_training.py"): [
        (
            "Federated Dropout averages with another draw",
            "channels(config, fed, now, client)",
            "channels(config, fed, now + 1, client)",
        ),
        (
            "rows of the head count from clients without the class",
            "if config.own_class_rows_only else None",
            "if False else None",
        ),
    ],
    ("fedkf::test_fedkf[oca]", "fedkf.py"): [
        ("the ACA model teaches in place of the OCA model", "else state.cache.overall", "else state.model"),
        (
            "the generator starts anew every round",
            "put(self.generator, on(fed.device, client_state.generator))",
            'models.initialise(self.generator, fed.rng.torch("init", "noise generator"))',
        ),
        (
            "every round starts the generator's Adam anew",
            "put_state(self.adam, self.generator, client_state.adam)",
            "pass",
        ),
        (
            "the activation loss is taken of logits",
            "activation_loss(features, config",
            "activation_loss(logits, config",
        ),
    ],
    ("fedkf::test_fedkf[oca]", "model_cache.py"): [
        ("the cache forgets clients that were not drawn", "dict(cache.latest) if cache is not None else {}", "{}"),
        ("the cache weighs clients alike", "fed.sizes[k])", "1)"),
    ],
    ("dhf::test_dhf[always]", "dhf.py"): [
        (
            "GME weighs clients alike for every label",
            "fed.classes).weights.to(",
            "fed.classes).weights.mul(0).add(1 / len(uploads)).to(",
        ),
        ("heads are handed to the wrong clients", "many[place].clone()", "many[place - 1].clone()"),
        ("the generator aims at another label's prototype", "merged[batch.y]", "merged[batch.y - 1]"),
        ("clients aim at another label's prototype", "table[y]", "table[y - 1]"),
        (
            "labels that no client of the round holds are drawn as well",
            "(counts.sum(dim=0) > 0)",
            "(counts.sum(dim=0) >= counts[0])",
        ),
        (
            "GME teaches with last round's prototypes",
            "generator, model, merged, counts,",
            "generator, model, state.prototypes, counts,",
        ),
    ],
    ("prototypes::test_fedproto[samples-mse-prototypes]", "fedproto.py"): [
        ("clients weigh alike though their counts are sent", "j: float(count) for j, count", "j: 1.0 for j, count"),
        ("own prototypes predict where global ones are known", ", own) | received", ", own) or received"),
        ("a class that nobody reports loses its prototype", "state.prototypes | merged", "merged"),
    ],
    ("prototypes::test_feddistill[True]", "feddistill.py"): [
        ("a client learns from its own logits too", "and k == client)", "and k < 0)"),
        ("reports of clients that were not drawn are forgotten", "state.reports | {u.client:", "{u.client:"),
        ("samples of classes without logits are taught as well", "valid[y])", "valid[y] * 0 + 1)"),
    ],
    ("mutual::test_fml", "fml.py"): [
        ("both models learn by α", "mutual_loss(config.beta,", "mutual_loss(config.alpha,"),
        ("clients' copies are weighed by size", "payload), 1.0)", "payload), fed.sizes[u.client])"),
        ("the own model starts anew every round", "client_state.model if client_state is not None else ", ""),
    ],
    ("mutual::test_fml", "mutual_pair.py"): [
        ("the shared model does not learn", "other - other.detach()", "other.detach() * 0"),
    ],
    ("mutual::test_fedkd", "fedkd.py"): [
        ("the mentee learns at the mentor's rate", "config.mentee_lr / config.lr", "1.0"),
        (
            "the server forgets to truncate",
            "compressed(total.mean(), energy(config, fed, state.round + 1))",
            'pack("model", total.mean())',
        ),
        (
            "the map starts anew every round",
            "client_state.model, client_state.map",
            "client_state.model, take(module.map)",
        ),
        (
            "the update is never sent alone",
            "if client in state.current else",
            "if client < 0 else",
        ),
        ("one singular value too few is kept", "return 1 + (", "return 0 + ("),
    ],
    ("prototypes::test_fedgh", "fedgh.py"): [
        ("clients keep their own header", 'own | unpack("head", payload)', "own"),
        ("every round trains the first header", "put_head(head, state.head)", "put_head(head, fed.initial_params())"),
    ],
    ("prototypes::test_fedgh", "prototypes.py"): [
        ("labels do not follow the order of prototypes", "labels[chosen])", "labels[: len(chosen)])"),
    ],
    ("prototypes::test_fedtgp[0.01]", "fedtgp.py"): [
        (
            "every round trains the first vectors",
            "put(module, state.network)",
            "put(module, init(config, fed, rng).network)",
        ),
        ("the margin draws the own class near", "+ margin *", "- margin *"),
    ],
    ("prototypes::test_fedtgp[100.0]", "fedtgp.py"): [
        ("the margin is the least distance", ".min(dim=1).values.max()", ".min(dim=1).values.min()"),
    ],
    ("models::test_fedamp", "fedamp.py"): [
        ("the penalty is λ/2 and not λ/(2α)", "config.lambda_ / config.alpha", "config.lambda_"),
        ("clouds are handed to the wrong clients", "many[place].clone()", "many[place - 1].clone()"),
        ("clients that were not drawn lose their cloud", "state.clouds | fresh", "fresh"),
        ("a client pays attention to itself by distance", "torch.diag(1.0 - xi.sum(dim=1))", "torch.diag(xi[0])"),
    ],
    ("models::test_fedphp[mmd]", "fedphp.py"): [
        ("the private model is measured after the next round's start", "model=memory,", "model=model,"),
        ("momentum does not grow", "min(1.0, times / expected)", "1.0"),
        (
            "memory and model are swapped",
            "share * memory[name] + (1.0 - share)",
            "(1.0 - share) * memory[name] + share",
        ),
    ],
    ("models::test_fedphp[kd]", "fedphp.py"): [
        ("soft labels are not softened", "said / config.kd_temperature", "said"),
    ],
    ("models::test_fedfomo[start]", "fedfomo.py"): [
        ("a client's own model is not among those it chooses from", "[*peers, known.model])", "list(peers))"),
        ("the baseline is the model before", "ClientState(model, start if", "ClientState(model, known.model if"),
        ("models are judged by what is trained on", "training, validation = split(", "validation, training = split("),
        ("worse models push the own one away", "served.clamp(min=0.0)", "served.abs()"),
        ("affinities are forgotten", "known.get(int(m), 0.0) + value", "value"),
    ],
    ("fedftg::test_fedftg[fedavg]", "fedftg.py"): [
        ("τ is given to the wrong clients", "labels.weights.to(", "labels.weights.roll(1, 0).to("),
        ("labels are uniform instead of p(y)", "labels.probabilities", "torch.ones(fed.classes)"),
        (
            "diversity is measured by merged vectors instead of noise",
            "batch.images, batch.z)",
            "batch.images, batch.merged)",
        ),
    ],
    ("dense::test_dense[none]", "dense.py"): [
        (
            "statistics are compared with another client's",
            "zip(seen, reported, strict=True)",
            "zip(seen, (reported[1], reported[0], *reported[2:]), strict=True)",
        ),
    ],
    ("dense::test_dense[fedrolex]", "dense.py"): [
        ("labels are drawn unevenly", "labels.probabilities", "torch.arange(1.0, fed.classes + 1)"),
    ],
    ("dense::test_dense[none]", "distillation_bases.py"): [
        (
            "late clients of the data-free mode start from the common model",
            'fed.initial_params("late", client,',
            "fed.initial_params(",
        ),
    ],
    ("averages::test_fedavg[skip]", "fedavg.py"): [
        ("clients are weighed alike", "fed.sizes[u.client])", "1)"),
    ],
    ("averages::test_fedavg[skip]", "local.py"): [
        ("a slow client does all its steps", "step_share * planned", "1 * planned"),
    ],
    ("averages::test_fedprox", "fedprox.py"): [
        ("the proximal term is not halved", "mu / 2 *", "mu *"),
    ],
    ("averages::test_qffl", "qffl.py"): [
        (
            "losses are given to the wrong clients",
            '["loss"]) for u in ahead(uploads)]',
            '["loss"]) for u in ahead(uploads)[::-1]]',
        ),
    ],
    ("averages::test_fedgkd[average-True-teacher_first]", "fedgkd.py"): [
        (
            "the initial model is among the teachers",
            "State(fed.initial_params(), ())",
            "State(fed.initial_params(), (fed.initial_params(),))",
        ),
        ("the distillation is not halved", "config.gamma / 2 *", "config.gamma *"),
    ],
    ("personal::test_personal_models[fedper]", "split_model.py"): [
        ("the head starts anew every round", "if client_state is not None else", "if False else"),
    ],
    ("personal::test_personal_models[lgfedavg]", "split_model.py"): [
        ("the extractor starts anew every round", "if client_state is not None else", "if False else"),
    ],
    ("personal::test_personal_models[mixed]", "split_model.py"): [
        (
            "the first head is that of the deep model",
            "shared(fed.initial_params())",
            "shared(initial_model(config, fed, 1))",
        ),
        ("heads are averaged alike", '"model", u.payload), fed.sizes[u.client])', '"model", u.payload), 1.0)'),
    ],
    ("personal::test_personal_models[local]", "local.py"): [
        ("the model starts anew every round", "client_state.model if client_state is not None else ", ""),
    ],
    ("drift::test_scaffold", "scaffold.py"): [
        ("the correction has the wrong sign", "common[name] - own[name] for", "own[name] - common[name] for"),
        ("the control starts anew every round", "client_state.control if client_state is not None else ", ""),
        ("controls are averaged over the round's clients", "len(uploads) / fed.clients", "1.0"),
        ("the server weighs clients by size", "average((u.payload, 1.0)", "average((u.payload, fed.sizes[u.client])"),
        ("the control forgets the server's", "own[name] - common[name] + (", "own[name] + ("),
    ],
    ("drift::test_moon", "moon.py"): [
        ("near and far are swapped", "dim=1)[:, 0]", "dim=1)[:, 1]"),
        ("the temperature is forgotten", "dim=1) / tau", "dim=1)"),
        ("the received model stands in for the previous one", "client_state.previous))", "body_of(received)))"),
    ],
    ("adapted::test_perfedavg[fo]", "perfedavg.py"): [
        ("both gradients are of one part", "inner), xs[1], ys[1])", "inner), xs[0], ys[0])"),
        (
            "the step to the adapted model goes uphill",
            "moved(w, -config.alpha, inner)",
            "moved(w, config.alpha, inner)",
        ),
        ("the measured model is adapted at the other rate", "lr=config.alpha, ", ""),
    ],
    ("adapted::test_perfedavg[hf]", "perfedavg.py"): [
        ("the Hessian's product is added", "g[name] - factor *", "g[name] + factor *"),
        ("the difference is not halved", "(2 * config.delta)", "config.delta"),
    ],
    ("adapted::test_fedbabu[head-full]", "fedbabu.py"): [
        ("the head is trained", '"body" if config.frozen == "head" else "full"', '"full"'),
        (
            "fine-tuning moves the body alone",
            "partly_trained(fed, config.finetune_part)",
            'partly_trained(fed, "body")',
        ),
    ],
    ("adapted::test_fedbabu[head-full]", "executors.py"): [
        ("fine-tuning repeats the round's batches", '"personal", data.client', '"client", data.client'),
    ],
    ("adapted::test_ditto[0]", "ditto.py"): [
        ("the personal model starts anew every round", "client_state.model if client_state is not None else ", ""),
        ("the distance is not halved", "cross_entropy(lambda_, held)", "cross_entropy(2 * lambda_, held)"),
        ("the personal model is sent", 'pack("model", shared)', 'pack("model", own)'),
        ("the personal model is held near itself", "(anchor(module, received),)", "(anchor(module, own),)"),
    ],
    ("adapted::test_fedrod", "fedrod.py"): [
        ("the personal head starts anew every round", "client_state.head if client_state is not None else ", ""),
        ("the softmax is not balanced", "F.cross_entropy(generic + prior, y)", "F.cross_entropy(generic, y)"),
        ("the body learns from the personal head", "personal(features.detach())", "personal(features)"),
        ("the generic head learns from the personal loss", "generic.detach() + own", "generic + own"),
    ],
    ("servers::test_fedavgm", "fedavgm.py"): [
        ("the velocity is not scaled by the rate", "- rate * c for", "- c for"),
        (
            "the velocity keeps only what is new",
            "c + (state.model[name] - mean[name])",
            "state.model[name] - mean[name]",
        ),
    ],
    ("servers::test_adaptive_servers[fedadam]", "fedadam.py"): [
        ("v is a sum", "beta2 * v + (1 - beta2) * squared", "v + (1 - beta2) * squared"),
    ],
    ("servers::test_adaptive_servers[fedyogi]", "fedyogi.py"): [
        ("v never falls", "(v - squared).sign()", "-1"),
    ],
    ("servers::test_adaptive_servers[fedadam]", "server_optimiser.py"): [
        ("τ is under the root", "(v[name].sqrt() + config.tau)", "(v[name] + config.tau**2).sqrt()"),
        ("clients are weighed alike", "fed.sizes[u.client])", "1)"),
    ],
    ("servers::test_fednova[0.5]", "fednova.py"): [
        ("momentum does not count as work", "accumulated(steps, config.momentum)", "accumulated(steps, 0)"),
        ("the old model has no share", "sum(sizes) - sum(counts))", "0.0)"),
        ("the mean work weighs clients alike", "sum(n * (a - first)", "sum(total / len(sizes) * (a - first)"),
    ],
}

MUTANTS = [WrongStep(what, test, file, old, new) for (test, file), rows in _TABLE.items() for what, old, new in rows]
