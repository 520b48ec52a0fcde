"""Imported by every Python process that has this folder on its path: the clock shows another time than the machine's.

FEDTUNE_FAULTS_CLOCK: seconds added to it, FEDTUNE_FAULTS_CLOCK_AFTER: seconds after the process has started.
"""

import ctypes
import datetime
import gc
import os
import time

_SHIFT = float(os.environ.get("FEDTUNE_FAULTS_CLOCK", 0))
_AFTER = time.monotonic() + float(os.environ.get("FEDTUNE_FAULTS_CLOCK_AFTER", 0))
_true, _true_ns = time.time, time.time_ns


def _shift() -> float:
    return _SHIFT if time.monotonic() >= _AFTER else 0.0


def _now(cls, tz=None):
    return cls.fromtimestamp(time.time(), tz)


def _utcnow(cls):
    return cls.fromtimestamp(time.time(), datetime.UTC).replace(tzinfo=None)


time.time = lambda: _true() + _shift()
time.time_ns = lambda: _true_ns() + int(_shift() * 1e9)
# The class itself is changed, as compiled modules crash with another class in its place (pandas 3).
_methods = gc.get_referents(datetime.datetime.__dict__)[0]
_methods |= {"now": classmethod(_now), "utcnow": classmethod(_utcnow)}
ctypes.pythonapi.PyType_Modified(ctypes.py_object(datetime.datetime))
