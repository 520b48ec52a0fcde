"""From what a user asked for to the experiment that will be run."""
