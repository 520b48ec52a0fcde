"""One offline page about a run, or about several side by side."""

from analysis.report.build import build as build
from analysis.report.build import report as report
