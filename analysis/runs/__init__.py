"""A run directory, read."""

from analysis.runs.run import Run as Run
from analysis.runs.run import when as when
from analysis.runs.run_directory import Paths as Paths
from analysis.runs.run_directory import load as load
from analysis.runs.run_directory import load_all as load_all
from analysis.runs.run_directory import names as names
