"""One file per figure; see `analysis.figure` for what a file holds. A new file here is a new figure in every report."""
