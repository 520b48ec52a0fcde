"""How trials are run: queues that hand them out, one session of Ray, and what becomes of a trial."""
