"""What `fedtune auto` found: its runs, and the leaderboard over its methods."""

from analysis.auto.folder import Auto, explained, load, load_one
from analysis.auto.leaderboard import LeaderboardRow, expected_best

__all__ = ["Auto", "LeaderboardRow", "expected_best", "explained", "load", "load_one"]
