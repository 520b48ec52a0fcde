"""What a machine of a cluster says of itself. This module and `search_spaces.versions` need nothing but
Python: Ray takes their code along to machines where fedtune may not be installed."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Sequence

from search_spaces.versions import installed

#: Seconds after which a shared disk shows one machine what another has written.
SHARED = 5.0
#: Bytes of a file that are read at most.
MOST = 1 << 20


class Inspector:
    """Answers on one machine."""

    def clock(self) -> float:
        """Seconds since 1970, by this machine."""
        return time.time()

    def gpus(self) -> list[str]:
        """Name and memory of each GPU, as its driver says."""
        if (tool := shutil.which("nvidia-smi")) is None:
            return []
        words = [tool, "--query-gpu=name,memory.total", "--format=csv,noheader"]
        try:
            done = subprocess.run(words, capture_output=True, text=True, timeout=30, check=False)
        except (OSError, subprocess.TimeoutExpired):
            return []
        return done.stdout.splitlines() if done.returncode == 0 else []

    def memory(self) -> tuple[float, float]:
        """GiB of memory, and of that what is available."""
        total, free = 0.0, 0.0
        with open("/proc/meminfo", encoding="ascii") as lines:
            for line in lines:
                name, value = line.split(":")
                if name in ("MemTotal", "MemAvailable"):
                    kib = int(value.split()[0]) / (1 << 20)
                    total, free = (kib, free) if name == "MemTotal" else (total, kib)
        return total, free

    def versions(self, packages: Sequence[str]) -> dict[str, str]:
        return installed(packages)

    def reads(self, path: str, content: str) -> bool:
        """Whether the file at `path` can be read here and has this content."""
        deadline = time.monotonic() + SHARED
        while True:
            try:
                with open(path, encoding="utf-8") as file:
                    if file.read() == content:
                        return True
            except (OSError, UnicodeDecodeError):
                pass
            if time.monotonic() > deadline:
                return False
            time.sleep(0.2)

    def writes(self, folder: str) -> bool:
        """Whether this user may write to a folder here."""
        return os.access(folder, os.W_OK | os.X_OK)

    def sees(self, folders: Sequence[str]) -> list[str]:
        """Those of `folders` that are there."""
        return [folder for folder in folders if os.path.isdir(folder)]

    def rest(self, path: str, after: int) -> bytes:
        """What is in a file from this byte on, up to `MOST` bytes; nothing where it cannot be read."""
        try:
            with open(path, "rb") as file:
                file.seek(after)
                return file.read(MOST)
        except OSError:
            return b""
