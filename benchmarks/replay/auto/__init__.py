"""`fedtune auto` replayed: what does its leader lack of the best of all methods' searches with the same budget each?

    python -m benchmarks.replay run --tables auto        # on the recorded tables of `auto`, 20 repetitions

`world` puts the tables of a data set together, `command` replays the command, `rivals` what it is compared with,
`measure` repeats both and compares.
"""
