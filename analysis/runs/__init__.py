"""A run directory, read."""

from analysis.runs.run import Paths as Paths
from analysis.runs.run import Run as Run
from analysis.runs.run import load as load
from analysis.runs.run import load_all as load_all
from analysis.runs.run import names as names
from analysis.runs.run import when as when
