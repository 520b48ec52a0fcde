"""Who proposes a trial, who stops it, and who runs it."""
