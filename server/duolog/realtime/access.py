"""Who may open a call: keys and origins. Pure but for `ClientSecrets`, which keeps short-lived keys in memory."""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from duolog.ports.clock import WallClock
from duolog.ports.errors import Overloaded
from duolog.realtime.session_messages import SessionPayload

REALTIME_SUBPROTOCOL = "realtime"
BROWSER_KEY_PREFIX = "openai-insecure-api-key."
BETA_SUBPROTOCOL_PREFIX = "openai-beta."
CLIENT_SECRET_PREFIX = "ek_"


def bearer_key(headers: Mapping[str, str]) -> str | None:
    scheme, _, key = headers.get("authorization", "").partition(" ")
    return key.strip() if scheme.lower() == "bearer" and key.strip() else None


def browser_key(subprotocols: Iterable[str]) -> str | None:
    """The key a browser hands over as a subprotocol, having no headers of its own."""
    keys = (name.removeprefix(BROWSER_KEY_PREFIX) for name in subprotocols if name.startswith(BROWSER_KEY_PREFIX))
    return next(keys, None)


def asks_for_beta(headers: Mapping[str, str], subprotocols: Iterable[str]) -> bool:
    in_header = "realtime=" in headers.get("openai-beta", "")
    return in_header or any(name.startswith(BETA_SUBPROTOCOL_PREFIX) for name in subprotocols)


def key_matches(key: str | None, allowed: Sequence[str]) -> bool:
    """Compared in constant time, and with every allowed key."""
    given = (key or "").encode()
    matches = [hmac.compare_digest(given, one.encode()) for one in allowed]
    return any(matches)


def origin_allowed(headers: Mapping[str, str], allowed: Sequence[str]) -> bool:
    """False where a browser's page of another site asks. Clients that are no browsers send no Origin."""
    origin = headers.get("origin")
    if origin is None or "*" in allowed:
        return True
    if origin.rstrip("/").lower() in {one.rstrip("/").lower() for one in allowed}:
        return True
    host = urlsplit(origin).netloc.lower()
    return bool(host) and host == headers.get("host", "").lower()


@dataclass(frozen=True, slots=True)
class ClientSecret:
    value: str
    expires_at: int
    """Unix time in seconds."""
    session: SessionPayload | None
    """What a call opened with it begins with."""


class ClientSecrets:
    """Short-lived keys that a server of the user's hands to a browser."""

    def __init__(self, clock: WallClock, max_secrets: int) -> None:
        self._clock = clock
        self._max_secrets = max_secrets
        self._secrets: dict[str, ClientSecret] = {}

    def issue(self, seconds: int, session: SessionPayload | None) -> ClientSecret:
        """A new secret. Raises Overloaded where too many are alive."""
        now = self._clock.unix_time()
        self._secrets = {key: one for key, one in self._secrets.items() if one.expires_at > now}
        if len(self._secrets) >= self._max_secrets:
            first_s = min(one.expires_at for one in self._secrets.values()) - now
            message = (
                f"{self._max_secrets} client secrets are alive, and no more are given out; wait until one expires."
            )
            raise Overloaded(message, retry_after_s=max(1.0, first_s))
        value = CLIENT_SECRET_PREFIX + secrets.token_urlsafe(24)
        secret = ClientSecret(value, int(now) + seconds, session)
        self._secrets[value] = secret
        return secret

    def adopt(self, secret: ClientSecret) -> None:
        """Let in who was given a secret by another server process. Nothing happens where too many are alive."""
        if len(self._secrets) < self._max_secrets:
            self._secrets.setdefault(secret.value, secret)

    def find(self, value: str | None) -> ClientSecret | None:
        """The secret while it is valid. A value of 192 random bits is found by look-up without telling anything."""
        secret = self._secrets.get(value or "")
        return secret if secret is not None and secret.expires_at > self._clock.unix_time() else None
