"""A run directory, read."""

from analysis.runs.run import Run as Run
from analysis.runs.run import when as when
from analysis.runs.run_directory import Paths as Paths
from analysis.runs.run_directory import load_run as load_run
from analysis.runs.run_directory import load_runs as load_runs
from analysis.runs.run_directory import run_names as run_names
