"""What is decided of a search by its history alone: which trial comes next, and which one stops.

Nothing here knows of Ray, of processes or of files."""
