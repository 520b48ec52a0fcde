#!/usr/bin/env python3
"""Runs a command and never lets the screen stand still.

    scripts/heartbeat.py [--watch FOLDER] [--silence SECONDS] "Installing" command argument ...

The command's output passes through unchanged. Whenever it has been silent for three seconds (or --silence) a line says
how long it has run and, with --watch, how many megabytes the folder holds. Exits with the command's code. Uses the
standard library only: it runs before anything is installed.
"""

from __future__ import annotations

import os
import selectors
import shutil
import subprocess
import sys
import time


def main() -> int:
    arguments = sys.argv[1:]
    folder, silence = "", 3.0
    while arguments[0] in ("--watch", "--silence"):
        if arguments[0] == "--watch":
            folder = arguments[1]
        else:
            silence = float(arguments[1])
        arguments = arguments[2:]
    label, command = arguments[0], arguments[1:]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None and process.stderr is not None
    selector = selectors.DefaultSelector()
    selector.register(process.stdout, selectors.EVENT_READ, 1)
    selector.register(process.stderr, selectors.EVENT_READ, 2)
    started = last = time.monotonic()
    midline = False
    while selector.get_map():
        try:
            ready = selector.select(timeout=max(0.0, last + silence - time.monotonic()))
            for key, _ in ready:
                data = os.read(key.fd, 65536)
                if not data:
                    selector.unregister(key.fileobj)
                    continue
                write(key.data, data)
                midline = not data.endswith(b"\n")
                last = time.monotonic()
            if not ready:
                beat = f"{label} ... {time.monotonic() - started:.0f} s{size(folder)}\n"
                write(2, (("\n" if midline else "") + beat).encode())
                midline = False
                last = time.monotonic()
        except KeyboardInterrupt:
            continue  # the command has received it as well and decides
    return process.wait() if process.returncode is None else process.returncode


def write(to: int, data: bytes) -> None:
    """All of `data` to our own stdout (1) or stderr (2)."""
    while data:
        data = data[os.write(to, data) :]


def size(folder: str) -> str:
    """`, 812 MB`, or nothing when it cannot be measured within a second and a half."""
    if not folder or not shutil.which("du"):
        return ""
    try:
        found = subprocess.run(["du", "-sm", folder], capture_output=True, text=True, timeout=1.5, check=False)
        return f", {found.stdout.split()[0]} MB in {folder}" if found.stdout else ""
    except subprocess.TimeoutExpired:
        return ""


if __name__ == "__main__":
    code = main()
    # A command ended by a signal reports minus the signal's number; shells say 128 plus it.
    sys.exit(code if code >= 0 else 128 - code)
