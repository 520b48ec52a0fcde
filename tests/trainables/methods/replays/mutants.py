"""Wrong steps that each replay has to notice: a correct equation fed the wrong thing. `test_mutants` makes every one of them.

A mutant is a piece of a file under `trainables` and what is written in its place. Pieces are short, so that moving or
rewrapping code leaves most of them valid; one that is no longer found exactly once is reported.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Mutant:
    """`old` becomes `new`, in the only file named `file` or `*/file` that has it. `test` is the replay that must then fail."""

    what: str
    test: str
    file: str
    old: str
    new: str


#: The replay of every method, `file::test`; where a method has several, one.
REPLAYS = {
    "dense": "dense::test_dense[fedrolex]",
    "dfrd": "dfrd::test_dfrd[fedavg]",
    "dhf": "dhf::test_dhf[always]",
    "fedavg": "averages::test_fedavg[skip]",
    "fedcg": "fedcg::test_fedcg[kd]",
    "feddropout": "submodels::test_methods_with_submodels[feddropout]",
    "fedftg": "fedftg::test_fedftg[fedavg]",
    "fedgen": "fedgen::test_fedgen[full]",
    "fedgkd": "averages::test_fedgkd[average-True-teacher_first]",
    "fedkf": "fedkf::test_fedkf[oca]",
    "fedmdcg": "fedmdcg::test_fedmdcg[kdc]",
    "fedper": "personal::test_personal_models[fedper]",
    "fedprox": "averages::test_fedprox",
    "fedrolex": "submodels::test_methods_with_submodels[fedrolex]",
    "heterofl": "submodels::test_methods_with_submodels[heterofl]",
    "lgfedavg": "personal::test_personal_models[lgfedavg]",
    "local": "personal::test_personal_models[local]",
    "qffl": "averages::test_qffl",
}

_DFRD, _DFRD_ROLEX, _FEDMDCG, _FEDGEN, _FEDCG, _FEDKF = (
    REPLAYS["dfrd"], "dfrd::test_dfrd[fedrolex]", REPLAYS["fedmdcg"], REPLAYS["fedgen"], REPLAYS["fedcg"], REPLAYS["fedkf"],
)
_DHF, _FEDFTG, _DENSE, _FEDGKD = REPLAYS["dhf"], REPLAYS["fedftg"], REPLAYS["dense"], REPLAYS["fedgkd"]
_SERVER, _CROSSED, _BASES = "server_distillation.py", "generator_aggregation.py", "distillation_bases.py"

MUTANTS = [
    # DFRD
    Mutant("α is not applied in the distillation", _DFRD, "dfrd.py", "self.config.alpha * self._distil(", "self._distil("),
    Mutant("the averaged generator's images come from the current one", _DFRD, "dfrd.py", "synthesise(self.averaged,",
           "synthesise(self.phases.generator,"),
    Mutant("τ is given to the wrong clients", _DFRD, "dfrd.py", "labels.weights.to(", "labels.weights.roll(1, 0).to("),
    Mutant("labels are uniform instead of p(y)", _DFRD, "dfrd.py", "labels.probabilities", "torch.ones(fed.classes)"),
    Mutant("the generator is in training mode while distilling", _DFRD, _SERVER, "self.generator.eval()", "self.generator.train()"),
    Mutant("the moving average starts from the new generator", _DFRD_ROLEX, "dfrd.py", "ema = moving_average(ema, take(",
           "ema = moving_average(take(distillation.phases.generator), take("),
    Mutant("the base averages with the next round's windows", _DFRD_ROLEX, _BASES, "channels(fed, now, u.client)", "channels(fed, now + 1, u.client)"),
    Mutant("images are not mapped to the data set's normalisation for models", _DFRD_ROLEX, _SERVER,
           "to_models(self.config, self.fed, images)", "images"),
    Mutant("the student is compared on other images than the teachers'", _DFRD, "dfrd.py", "self.phases.student(batch.seen), ensemble, self.config.kd",
           "self.phases.student(batch.images.flip(0)), ensemble, self.config.kd"),
    # FedMD-CG
    Mutant("λ₂ is dropped where the weights are built", _FEDMDCG, "fedmdcg.py", "factor * config.lambda2", "0.0"),
    Mutant("free labels are uniform instead of p(y)", _FEDMDCG, "fedmdcg.py", "torch.multinomial(self.probabilities,",
           "torch.multinomial(torch.ones_like(self.probabilities),"),
    Mutant("the server's labels are uniform instead of p(y)", _FEDMDCG, "fedmdcg.py", "labels.weights, labels.probabilities, rng",
           "labels.weights, torch.ones(fed.classes), rng"),
    Mutant("kdc weighs clients alike", _FEDMDCG, _CROSSED, "tau.to(fed.device)[:, y]", "torch.full_like(tau, 1 / len(uploads))[:, y]"),
    Mutant("kdc's τ is given to the wrong clients", _FEDMDCG, _CROSSED, "tau.to(fed.device)[:, y]", "tau.roll(1, 0)[:, y]"),
    Mutant("kd weighs clients alike", "fedmdcg::test_fedmdcg[kd]", _CROSSED, "/ sum(sizes)", "* 0 + 1 / len(sizes)"),
    Mutant("the frozen global generator is in training mode", _FEDMDCG, "fedmdcg.py", '"frozen", config.noise_dim).eval()',
           '"frozen", config.noise_dim).train()'),
    Mutant("every round starts the client's Adam anew", _FEDMDCG, "fedmdcg.py", "put_state(adam, generator, client_state.adam)", "pass"),
    Mutant("the client trains the global generator instead of its own", _FEDMDCG, "fedmdcg.py", "on(fed.device, client_state.generator)",
           "on(fed.device, initial_generator(fed, config.noise_dim))"),
    # FedCG
    Mutant("real and generated features are swapped", _FEDCG, "fedcg.py", "discriminator_loss(critic(features), critic(made.detach()))",
           "discriminator_loss(critic(made.detach()), critic(features))"),
    Mutant("the discriminator starts anew every round", _FEDCG, "fedcg.py", "on(fed.device, client_state.discriminator)",
           "take(discriminator(fed, 'initial'))"),
    Mutant("kd weighs clients alike", _FEDCG, _CROSSED, "/ sum(sizes)", "* 0 + 1 / len(sizes)"),
    Mutant("kdc weighs clients alike", "fedcg::test_fedcg[kdc]", _CROSSED, "tau.to(fed.device)[:, y]", "torch.full_like(tau, 1 / len(uploads))[:, y]"),
    Mutant("kdc's labels are uniform instead of p(y)", "fedcg::test_fedcg[kdc]", "fedcg.py", "labels.weights, labels.probabilities, rng",
           "labels.weights, torch.ones(fed.classes), rng"),
    Mutant("the frozen global generator is in training mode", "fedcg::test_fedcg[kdc]", "fedcg.py", '"frozen", config.noise_dim).eval()',
           '"frozen", config.noise_dim).train()'),
    # FedGen
    Mutant("the server weighs clients alike for every label", _FEDGEN, "fedgen.py", "found.weights.to(",
           "torch.full_like(found.weights, 1 / len(uploads)).to("),
    Mutant("τ is given to the wrong clients", _FEDGEN, "fedgen.py", "found.weights.to(", "found.weights.roll(1, 0).to("),
    Mutant("the teachers' logits are averaged with equal shares", "fedgen::test_fedgen[head]", "fedgen.py", "sizes / sizes.sum()",
           "torch.ones_like(sizes) / len(sizes)"),
    Mutant("clients' labels are uniform instead of p(y)", "fedgen::test_fedgen[head]", "fedgen.py", "torch.multinomial(self.probabilities,",
           "torch.multinomial(torch.ones_like(self.probabilities),"),
    Mutant("labels that nobody has are drawn as well", _FEDGEN, "fedgen.py", "(found.probabilities > 0)", "(found.probabilities >= 0)"),
    Mutant("the guiding generator is in training mode", _FEDGEN, "fedgen.py", "(config.gen_hidden,)).eval()", "(config.gen_hidden,)).train()"),
    Mutant("every round starts the generator's Adam anew", _FEDGEN, "fedgen.py", "put_state(adam, generator, state.adam)", "pass"),
    # sub-models
    Mutant("FedRolex averages with the next round's windows", REPLAYS["fedrolex"], "fedrolex.py", "channels(fed, now, u.client)",
           "channels(fed, now + 1, u.client)"),
    Mutant("FedRolex cuts with the last round's windows", REPLAYS["fedrolex"], "fedrolex.py", "channels(fed, state.round + 1, client)",
           "channels(fed, state.round, client)"),
    Mutant("HeteroFL trains without the scaler", REPLAYS["heterofl"], "partial_training.py", "scaler=config.scaler", "scaler=False"),
    Mutant("HeteroFL weighs clients by size though asked not to", REPLAYS["heterofl"], "partial_training.py", 'config.agg_weight == "samples"', "True"),
    Mutant("Federated Dropout averages with another draw", REPLAYS["feddropout"], "feddropout.py", "channels(fed, now, u.client)",
           "channels(fed, now + 1, u.client)"),
    Mutant("rows of the head count from clients without the class", REPLAYS["feddropout"], "partial_training.py",
           "if config.own_class_rows_only else None", "if False else None"),
    # FedKF
    Mutant("the ACA model teaches in place of the OCA model", _FEDKF, "fedkf.py", "else state.cache.overall", "else state.model"),
    Mutant("the cache forgets clients that were not drawn", _FEDKF, "model_cache.py", "dict(cache.latest) if cache is not None else {}", "{}"),
    Mutant("the cache weighs clients alike", _FEDKF, "model_cache.py", "fed.sizes[k])", "1)"),
    Mutant("the generator starts anew every round", _FEDKF, "fedkf.py", "put(self.generator, on(fed.device, client_state.generator))",
           'models.initialise(self.generator, fed.rng.torch("init", "noise generator"))'),
    Mutant("every round starts the generator's Adam anew", _FEDKF, "fedkf.py", "put_state(self.adam, self.generator, client_state.adam)", "pass"),
    Mutant("the activation loss is taken of logits", _FEDKF, "fedkf.py", "activation_loss(features, config", "activation_loss(logits, config"),
    # DHF
    Mutant("GME weighs clients alike for every label", _DHF, "dhf.py", "fed.classes).weights.to(", "fed.classes).weights.mul(0).add(1 / len(uploads)).to("),
    Mutant("heads are handed to the wrong clients", _DHF, "dhf.py", "many[place].clone()", "many[place - 1].clone()"),
    Mutant("the generator aims at another label's prototype", _DHF, "dhf.py", "merged[batch.y]", "merged[batch.y - 1]"),
    Mutant("clients aim at another label's prototype", _DHF, "dhf.py", "table[y]", "table[y - 1]"),
    Mutant("labels that no client of the round holds are drawn as well", "dhf::test_dhf[always]", "dhf.py", "(counts.sum(dim=0) > 0)",
           "(counts.sum(dim=0) >= counts[0])"),
    Mutant("GME teaches with last round's prototypes", _DHF, "dhf.py", "generator, model, merged, counts,", "generator, model, state.prototypes, counts,"),
    # FedFTG
    Mutant("τ is given to the wrong clients", _FEDFTG, "fedftg.py", "labels.weights.to(", "labels.weights.roll(1, 0).to("),
    Mutant("labels are uniform instead of p(y)", _FEDFTG, "fedftg.py", "labels.probabilities", "torch.ones(fed.classes)"),
    Mutant("diversity is measured by merged vectors instead of noise", _FEDFTG, "fedftg.py", "batch.images, batch.z)", "batch.images, batch.merged)"),
    # DENSE
    Mutant("statistics are compared with another client's", "dense::test_dense[none]", "dense.py", "zip(seen, reported, strict=True)",
           "zip(seen, reported[::-1], strict=True)"),
    Mutant("labels are drawn unevenly", _DENSE, "dense.py", "labels.probabilities", "torch.arange(1.0, fed.classes + 1)"),
    Mutant("late clients of the data-free mode start from the common model", "dense::test_dense[none]", _BASES,
           'fed.initial_params("late", client,', "fed.initial_params("),
    # averages and personal models
    Mutant("clients are weighed alike", REPLAYS["fedavg"], "fedavg.py", "fed.sizes[u.client])", "1)"),
    Mutant("a slow client does all its steps", REPLAYS["fedavg"], "local.py", "step_share * planned", "1 * planned"),
    Mutant("the proximal term is not halved", REPLAYS["fedprox"], "fedprox.py", "mu / 2 *", "mu *"),
    Mutant("losses are given to the wrong clients", REPLAYS["qffl"], "qffl.py", '["loss"]) for u in uploads]', '["loss"]) for u in uploads[::-1]]'),
    Mutant("the initial model is among the teachers", _FEDGKD, "fedgkd.py", "State(fed.initial_params(), ())",
           "State(fed.initial_params(), (fed.initial_params(),))"),
    Mutant("the distillation is not halved", _FEDGKD, "fedgkd.py", "config.gamma / 2 *", "config.gamma *"),
    Mutant("the head starts anew every round", REPLAYS["fedper"], "fedper.py", "client_state.private if client_state is not None else ", ""),
    Mutant("the extractor starts anew every round", REPLAYS["lgfedavg"], "lgfedavg.py", "client_state.private if client_state is not None else ", ""),
    Mutant("the model starts anew every round", REPLAYS["local"], "local.py", "client_state.model if client_state is not None else ", ""),
]
