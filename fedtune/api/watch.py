"""`fedtune report --watch`: a page on the loopback address that follows a running search.

The page is made anew where the run has changed since it was last asked for, and tells the browser to ask again after
some seconds, as long as the run goes on. Its address holds a random word: who does not know it gets nothing, as other
users of the machine can reach the port too.
"""

from __future__ import annotations

import secrets
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from analysis.report.build import Tell, document
from analysis.runs import load_run as load
from fedtune.record.run_directory import is_driven
from search_spaces import run_folder
from search_spaces.errors import UserError, sentence

LOOPBACK = "127.0.0.1"
#: Seconds between two looks of the browser.
EVERY = 5


class Watched:
    """The report of a run as it is now."""

    def __init__(self, run: str | Path) -> None:
        self.folder = load(run).path
        self._lock = threading.Lock()
        self._state: object = None
        self._page = b""

    def page(self, tell: Tell = lambda doing: None) -> bytes:
        """The report; made once for every state of the run's files. `tell` is called with a few words before every
        step."""
        with self._lock:
            state = self._files()
            if state != self._state:
                self._page = document([load(self.folder)], tell).encode("utf-8")
                self._state = state
            return self._page

    def goes_on(self) -> bool:
        return is_driven(self.folder)

    def _files(self) -> list[tuple[str, int, int]]:
        rows = self.folder.glob(f"{run_folder.TRIALS}/*/{run_folder.ROUNDS}")
        found = [self.folder / run_folder.STUDY, *sorted(rows)]
        return [(str(path), s.st_mtime_ns, s.st_size) for path in found if path.exists() for s in [path.stat()]]


def server(run: str | Path, port: int = 0, tell: Tell = lambda doing: None) -> tuple[ThreadingHTTPServer, str]:
    """A server that is to be started with `serve`, and the address of its page. With port 0 a free one is used. The
    first page is made before, so that the browser need not wait for it; `tell` is called before every step of it.

    Raises `UserError` where `run` is no run directory or the port is taken."""
    if not 0 <= port <= 65535:
        raise UserError(sentence("port", "a whole number in [0, 65535]", port, "--port"))
    watched, word = Watched(run), secrets.token_urlsafe(16)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            # A page of somewhere else whose name leads to this address must not read it.
            if self.headers.get("Host") != f"{LOOPBACK}:{made.server_port}":
                self.send_error(403)
            elif self.path != f"/{word}/{run_folder.REPORT}":
                self.send_error(404)
            else:
                try:
                    page = watched.page()
                except UserError as error:  # the folder was moved or removed
                    self.send_error(404, " ".join(str(error).split()).encode("ascii", "replace").decode())
                else:
                    self._send(page)

        def _send(self, page: bytes) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.send_header("Content-Length", str(len(page)))
            self.send_header("Cache-Control", "no-store")
            self.send_header("Referrer-Policy", "no-referrer")
            if watched.goes_on():
                self.send_header("Refresh", str(EVERY))
            self.end_headers()
            self.wfile.write(page)

        def log_message(self, format: str, *args: object) -> None:
            """Requests are not told on stderr."""

    try:
        made = ThreadingHTTPServer((LOOPBACK, port), Handler)
    except OSError as error:
        raise UserError(
            f"Port {port} cannot be used: {error.strerror}. Give another --port, or 0 for a free one."
        ) from error
    made.daemon_threads = True
    try:
        watched.page(tell)
    except BaseException:
        made.server_close()
        raise
    return made, f"http://{LOOPBACK}:{made.server_port}/{word}/{run_folder.REPORT}"


def serve(made: ThreadingHTTPServer) -> None:
    """Serves the page until Ctrl-C."""
    try:
        made.serve_forever()
    except KeyboardInterrupt:
        pass
    finally:
        made.server_close()
