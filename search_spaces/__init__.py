"""The language of fedtune: declared parameters, search spaces, presets, metrics. Imports nothing else of ours."""
