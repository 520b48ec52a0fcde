"""Which configuration of a search is the best, and how sure that is."""

from analysis.estimate.unseen import Unseen, unseen, unseen_sentence
from analysis.estimate.winner import Estimate, Standing, ahead, configuration, estimate, missed_target, standing
from analysis.estimate.words import ahead_sentence, apart, between, sentences, verdict

__all__ = [
    "Estimate",
    "Standing",
    "Unseen",
    "ahead",
    "ahead_sentence",
    "apart",
    "between",
    "configuration",
    "estimate",
    "missed_target",
    "sentences",
    "standing",
    "unseen",
    "unseen_sentence",
    "verdict",
]
