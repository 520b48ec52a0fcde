"""What a trial needs of the process it runs in and of its folder: threads and memory, checkpoint, rounds.jsonl,
values."""
