"""`fedtune report --watch`: who gets the page, and when it is another one."""

from __future__ import annotations

import http.client
import json
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from typer.testing import CliRunner

from fedtune.api import watch
from fedtune.cli import app
from search_spaces import run_folder
from search_spaces.errors import UserError
from tests.analysis import synthetic


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return synthetic.write(tmp_path / "run", trials=3, failures=False)


@pytest.fixture
def address(run: Path) -> Iterator[str]:
    made, found = watch.server(run)
    thread = threading.Thread(target=made.serve_forever)
    thread.start()
    yield found
    made.shutdown()
    made.server_close()
    thread.join()


def asked(address: str, path: str | None = None, host: str | None = None) -> tuple[int, str, http.client.HTTPMessage]:
    parts = urlsplit(address)
    connection = http.client.HTTPConnection("127.0.0.1", parts.port, timeout=60)
    connection.request("GET", path or parts.path, headers={"Host": host or parts.netloc})
    answer = connection.getresponse()
    return answer.status, answer.read().decode(), answer.headers


def test_the_page_is_that_of_the_run_as_it_is(run: Path, address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert urlsplit(address).hostname == "127.0.0.1"
    status, page, headers = asked(address)
    assert status == 200 and "Winner: trial" in page and "Refresh" not in headers, (
        "a run that is over is not asked again"
    )
    rows = run / run_folder.trial_folder(0) / run_folder.ROUNDS
    lines = [json.loads(line) for line in rows.read_text().splitlines()]
    rows.write_text("".join(json.dumps(line | {"val_global_accuracy": 0.1234}) + "\n" for line in lines))
    monkeypatch.setattr(watch, "is_driven", lambda folder: True)
    status, later, headers = asked(address)
    assert status == 200 and later != page and headers["Refresh"] == str(watch.EVERY)


def test_nobody_else_gets_it(address: str) -> None:
    assert asked(address, host="evil.example")[0] == 403
    assert asked(address, host=f"localhost:{urlsplit(address).port}")[0] == 403
    for path in ("/", "/report.html", "/x/report.html", urlsplit(address).path + "/../study.journal", "//etc/passwd"):
        assert asked(address, path=path)[0] == 404


def test_a_run_that_is_gone_is_told(run: Path, address: str) -> None:
    shutil.rmtree(run)
    assert asked(address)[0] == 404


def test_what_cannot_be_watched(run: Path, tmp_path: Path, address: str) -> None:
    with pytest.raises(UserError, match="There is no run"):
        watch.server(tmp_path / "none")
    with pytest.raises(UserError, match="cannot be used"):
        watch.server(run, urlsplit(address).port or 0)
    with pytest.raises(UserError, match="port must be"):
        watch.server(run, 70000)
    done = CliRunner().invoke(app, ["report", str(run), "--watch", "--csv"])
    assert isinstance(done.exception, UserError) and "writes no file" in str(done.exception)
