"""The process a trial runs in: its threads and memory, and the files it writes."""
