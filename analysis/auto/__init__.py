"""What `fedtune auto` found: its runs, and the leaderboard over its methods."""

from analysis.auto.folder import Auto, explained, load, load_one
from analysis.auto.leaderboard import LeaderboardRow, expected_best
from analysis.auto.record import is_auto

__all__ = ["Auto", "LeaderboardRow", "expected_best", "explained", "is_auto", "load", "load_one"]
