"""Which configuration of a search is the best, and how sure that is."""

from analysis.estimate.winner import Estimate, Standing, configuration, estimate, standing
from analysis.estimate.words import sentences

__all__ = ["Estimate", "Standing", "configuration", "estimate", "sentences", "standing"]
