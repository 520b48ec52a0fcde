"""Imported by every Python process that has this folder on its path: the clock shows another time than the machine's.

FEDTUNE_FAULTS_CLOCK: seconds added to it, FEDTUNE_FAULTS_CLOCK_AFTER: seconds after the process has started.
"""

import datetime
import os
import time

_SHIFT = float(os.environ.get("FEDTUNE_FAULTS_CLOCK", 0))
_AFTER = time.monotonic() + float(os.environ.get("FEDTUNE_FAULTS_CLOCK_AFTER", 0))
_true, _true_ns, _Datetime = time.time, time.time_ns, datetime.datetime


def _shift() -> float:
    return _SHIFT if time.monotonic() >= _AFTER else 0.0


class _Kind(type):
    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, _Datetime)

    def __subclasscheck__(cls, kind: type) -> bool:
        return issubclass(kind, _Datetime)


class _Shifted(_Datetime, metaclass=_Kind):
    @classmethod
    def now(cls, tz=None):
        return _Datetime.fromtimestamp(time.time(), tz)

    @classmethod
    def utcnow(cls):
        return _Datetime.fromtimestamp(time.time(), datetime.UTC).replace(tzinfo=None)


time.time = lambda: _true() + _shift()
time.time_ns = lambda: _true_ns() + int(_shift() * 1e9)
datetime.datetime = _Shifted
