"""Reading runs back: figures, reports, comparisons and statistics. Imports neither torch nor Ray."""
