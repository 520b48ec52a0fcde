"""What a Ray of our own hears of: its own token, and no other cluster. (That the token is asked for is tested in
tests/security.) `test_private_ray.py` runs these in a process of its own."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from ray._raylet import AuthenticationMode, AuthenticationTokenLoader, get_authentication_mode

from fedtune.machine.private_ray import _OTHERS, TOKEN, _alone, with_the_users_token


def header() -> str | None:
    """The token that this process would show."""
    found = AuthenticationTokenLoader.instance().get_token_for_http_header()
    return found["authorization"].removeprefix("Bearer ") if found else None


@pytest.fixture(autouse=True)
def without_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in (*_OTHERS, "RAY_AUTH_MODE", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.delenv(name, raising=False)


def test_a_token_of_its_own_for_every_ray(tmp_path: Path) -> None:
    tokens = set()
    for name in "ab":
        (tmp_path / name).mkdir()
        before = os.umask(0)
        try:
            with _alone(tmp_path / name):
                assert get_authentication_mode() == AuthenticationMode.TOKEN
                tokens.add(header())
        finally:
            os.umask(before)
        file = tmp_path / name / TOKEN
        assert stat.S_IMODE(file.stat().st_mode) == 0o600 and file.read_text() in tokens
        assert get_authentication_mode() == AuthenticationMode.DISABLED and header() is None
    assert len(tokens) == 2 and all(len(str(token)) == 64 for token in tokens)


def test_the_user_s_settings_do_not_hold_inside_and_hold_again_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = dict.fromkeys(_OTHERS, "elsewhere:1") | {"RAY_AUTH_MODE": "disabled", "RAY_AUTH_TOKEN": "mine"}
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    with _alone(tmp_path):
        assert not set(_OTHERS) & os.environ.keys()
        assert header() == (tmp_path / TOKEN).read_text()
    assert {name: os.environ[name] for name in given} == given
    assert "RAY_AUTH_TOKEN_PATH" not in os.environ and "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER" not in os.environ


def test_a_token_file_that_is_there_is_not_used(tmp_path: Path) -> None:
    (tmp_path / TOKEN).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(FileExistsError), _alone(tmp_path):
        pass
    assert not (tmp_path / "elsewhere").exists() and get_authentication_mode() == AuthenticationMode.DISABLED


@pytest.mark.parametrize("how", ["variable", "path", "home"])
def test_a_cluster_is_shown_the_user_s_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    file = tmp_path / "home" / ".ray" / "auth_token"
    file.parent.mkdir(parents=True)
    if how == "variable":
        monkeypatch.setenv("RAY_AUTH_TOKEN", "mine")
    else:
        file.write_text("mine")
    if how == "path":
        monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(file.rename(tmp_path / "token")))
    with with_the_users_token():
        assert header() == "mine"
    assert header() is None and "RAY_AUTH_MODE" not in os.environ


def test_without_a_token_none_is_shown_and_the_user_s_mode_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    with with_the_users_token():
        assert header() is None
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    monkeypatch.setenv("RAY_AUTH_TOKEN", "mine")
    with with_the_users_token():
        assert get_authentication_mode() == AuthenticationMode.DISABLED
