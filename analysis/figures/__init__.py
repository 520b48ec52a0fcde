"""One file per figure; see `analysis.figure` for what a file holds. A new file here is a new figure in every report."""

from analysis.figures._registry import figure as figure
from analysis.figures._registry import figures as figures
from analysis.figures._registry import names as names
