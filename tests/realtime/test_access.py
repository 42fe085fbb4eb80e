"""Keys, origins, client secrets."""

from __future__ import annotations

import pytest
from tests.realtime.fake_app import FixedClock

from duolog.ports.errors import Overloaded
from duolog.realtime.access import (
    ClientSecrets,
    asks_for_beta,
    bearer_key,
    browser_key,
    key_matches,
    origin_allowed,
)
from duolog.realtime.parsing import parse_session

pytestmark = pytest.mark.pure


@pytest.mark.parametrize(
    ("header", "key"),
    [("Bearer abc", "abc"), ("bearer  abc ", "abc"), ("Basic abc", None), ("Bearer ", None), ("", None)],
)
def test_bearer_key(header: str, key: str | None) -> None:
    assert bearer_key({"authorization": header}) == key


def test_browser_key() -> None:
    assert browser_key(["realtime", "openai-insecure-api-key.abc"]) == "abc"
    assert browser_key(["realtime"]) is None


def test_keys_match_whole_or_not_at_all() -> None:
    assert key_matches("b", ("a", "b"))
    assert not key_matches("ab", ("a", "b"))
    assert not key_matches(None, ("a",))
    assert not key_matches("ключ", ("a",))
    assert not key_matches("", ())


@pytest.mark.parametrize(
    ("origin", "host", "allowed", "comes_in"),
    [
        (None, "duolog.example", (), True),
        ("https://duolog.example", "duolog.example", (), True),
        ("http://127.0.0.1:8000", "127.0.0.1:8000", (), True),
        ("http://127.0.0.1:8001", "127.0.0.1:8000", (), False),
        ("https://evil.example", "duolog.example", (), False),
        ("https://duolog.example.evil.example", "duolog.example", (), False),
        ("null", "duolog.example", (), False),
        ("", "", (), False),
        ("https://Shop.example", "duolog.example", ("https://shop.example/",), True),
        ("https://any.example", "duolog.example", ("*",), True),
    ],
)
def test_origins(origin: str | None, host: str, allowed: tuple[str, ...], comes_in: bool) -> None:
    headers = {"host": host} if origin is None else {"host": host, "origin": origin}
    assert origin_allowed(headers, allowed) is comes_in


def test_beta_is_asked_for_by_header_or_subprotocol() -> None:
    assert asks_for_beta({"openai-beta": "realtime=v1"}, [])
    assert asks_for_beta({}, ["realtime", "openai-beta.realtime-v1"])
    assert not asks_for_beta({"openai-beta": "assistants=v2"}, ["realtime"])


def test_client_secrets_expire_and_are_bounded() -> None:
    clock = FixedClock(100.0)
    secrets = ClientSecrets(clock, max_secrets=2)
    session = parse_session({"type": "realtime", "instructions": "Sing."})
    first = secrets.issue(10, session)
    assert first.value.startswith("ek_")
    assert first.expires_at == 110
    secrets.issue(20, None)
    with pytest.raises(Overloaded) as caught:
        secrets.issue(20, None)
    assert caught.value.retry_after_s == pytest.approx(10)
    assert secrets.find(first.value) == first
    assert secrets.find(None) is None
    assert secrets.find("ek_guess") is None
    clock.now = 110.0
    assert secrets.find(first.value) is None
    secrets.issue(20, None)
