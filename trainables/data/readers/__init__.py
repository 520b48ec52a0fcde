"""One file per data set or family of data sets, each assigning `SOURCES: tuple[Source, ...]`; found by file name."""
