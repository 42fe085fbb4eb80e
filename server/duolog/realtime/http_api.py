"""The HTTP routes beside the WebSocket: personas, models, client secrets, health and metrics."""

from __future__ import annotations

import json
import math
import uuid
from contextlib import aclosing
from functools import partial
from typing import Literal

import anyio
import anyio.to_thread
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from duolog.ports.errors import Overloaded, RequestRefused
from duolog.ports.llm import Sampling
from duolog.realtime.access import ClientSecret, ClientSecrets, bearer_key, key_matches, origin_allowed
from duolog.realtime.http_repeats import KEY_REUSED, REQUEST_IN_PROGRESS, RepeatedRequests
from duolog.realtime.parsing import parse_session, refusal_of
from duolog.realtime.ports import AppPorts, PersonaSummary
from duolog.realtime.rendering import error_json
from duolog.realtime.session_messages import SessionPayload
from duolog.realtime.session_update import EffectiveSession, SessionMerger
from duolog.realtime.wire_session import WireSession, session_json
from duolog.session.config import SessionConfig

METRICS_MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"
DEFAULT_SECRET_S = 600
MAX_BODY_BYTES = 262_144
STATUS = {REQUEST_IN_PROGRESS: 409, KEY_REUSED: 422}
"""Of refusals, by code; else 400."""


class ExpiresAfter(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True, extra="forbid")

    anchor: Literal["created_at"] = "created_at"
    seconds: int = Field(default=DEFAULT_SECRET_S, ge=10, le=7_200)


class SecretRequest(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True, extra="forbid")

    expires_after: ExpiresAfter | None = None
    session: SessionPayload | None = None


class HttpApi:
    """One per application. Handlers raise RequestRefused and Overloaded; the application answers 4xx and 503."""

    def __init__(self, ports: AppPorts, client_secrets: ClientSecrets) -> None:
        self._ports = ports
        self._secrets = client_secrets
        self._repeats = RepeatedRequests(ports.idempotency)

    async def personas(self, _request: Request) -> Response:
        summaries = [
            {
                "id": one.id,
                "name": one.name,
                "description": one.description,
                "languages": list(one.languages),
                "voice": one.voice,
                "greeting": one.greeting,
            }
            for one in self._ports.personas()
        ]
        return JSONResponse({"personas": summaries, "default": self._ports.default_persona})

    async def models(self, _request: Request) -> Response:
        """The personas, as an OpenAI client lists models."""
        models = [
            {"id": one.id, "object": "model", "created": 0, "owned_by": "duolog"} for one in self._ports.personas()
        ]
        return JSONResponse({"object": "list", "data": models})

    async def healthz(self, _request: Request) -> Response:
        """Alive: 200 as long as the process answers, whatever its parts do."""
        return JSONResponse({"status": "ok", "parts": self._parts()})

    async def readyz(self, _request: Request) -> Response:
        """503 until every part that calls need is ready, and again while the server ends."""
        missing = [name for name, part in self._ports.health().items() if part.needed and not part.ready]
        ready = not missing and not self._ports.drain.begun
        return JSONResponse({"ready": ready, "parts": self._parts()}, status_code=200 if ready else 503)

    async def metrics(self, _request: Request) -> Response:
        """In a thread: the process's own figures are read from files."""
        text = await anyio.to_thread.run_sync(self._ports.metrics_text)
        return Response(text, headers={"content-type": METRICS_MEDIA_TYPE})

    async def client_secrets(self, request: Request) -> Response:
        """A short-lived key for a browser, and the session a call opened with it begins with."""
        if not origin_allowed(request.headers, self._ports.allowed_origins):
            return error_response(403, "Pages of this origin may not ask for keys here.", "origin_not_allowed")
        if self._ports.api_keys and not key_matches(bearer_key(request.headers), self._ports.api_keys):
            return error_response(401, "The API key is missing or wrong; send it as a bearer token.", "invalid_api_key")
        body = await _body(request)
        asked = _secret_request(body)
        seconds = (asked.expires_after or ExpiresAfter()).seconds
        given = await self._repeats.once(request, body, partial(self._issue_secret, asked, seconds), keep_s=seconds)
        self._secrets.adopt(ClientSecret(str(given["value"]), int(str(given["expires_at"])), asked.session))
        return JSONResponse(given)

    def _issue_secret(self, asked: SecretRequest, seconds: int) -> dict[str, object]:
        session = self._session(asked.session)
        secret = self._secrets.issue(seconds, asked.session)
        return {"value": secret.value, "expires_at": secret.expires_at, "session": session}

    def _parts(self) -> dict[str, dict[str, object]]:
        return {name: {"ready": part.ready, "detail": part.detail} for name, part in self._ports.health().items()}

    def _session(self, payload: SessionPayload | None) -> object:
        """The session such a call will have, as far as it is known before a call. Raises RequestRefused."""
        payload = payload or parse_session({"type": "realtime"})
        personas = {one.id: one for one in self._ports.personas()}
        persona = personas.get(payload.model or "") or personas[self._ports.default_persona]
        initial = self._initial(persona)
        merger = SessionMerger(initial, personas, self._ports.voices(), self._ports.limits.max_text_chars)
        merged = merger.merge(initial, payload)
        return session_json(merged.config, merged.wire)

    def _initial(self, persona: PersonaSummary) -> EffectiveSession:
        config = SessionConfig(
            persona=persona.id,
            instructions="",
            voice=persona.voice,
            language=persona.languages[0] if len(persona.languages) == 1 else None,
            sampling=Sampling(),
        )
        expires_at = int(self._ports.clock.unix_time() + self._ports.limits.max_call_s)
        return EffectiveSession(config, WireSession.initial(f"sess_{uuid.uuid4().hex[:24]}", expires_at, config))


async def _body(request: Request) -> bytes:
    announced = request.headers.get("content-length", "")
    if announced.isdecimal() and int(announced) > MAX_BODY_BYTES:
        raise _body_too_large()
    body = b""
    async with aclosing(request.stream()) as chunks:
        async for chunk in chunks:
            body += chunk
            if len(body) > MAX_BODY_BYTES:
                raise _body_too_large()
    return body


def _body_too_large() -> RequestRefused:
    return RequestRefused(f"The body has more than {MAX_BODY_BYTES} bytes; send less.", code="message_too_large")


def _secret_request(body: bytes) -> SecretRequest:
    try:
        raw = json.loads(body or b"{}")
    except ValueError as error:
        raise RequestRefused(f"The body is not valid JSON: {error}.", code="invalid_json") from error
    try:
        return SecretRequest.model_validate(raw)
    except ValidationError as error:
        raise refusal_of(raw, error.errors(include_url=False)[0]) from error


def error_response(status: int, message: str, code: str, param: str | None = None) -> Response:
    kind = "server_error" if status >= 500 else "invalid_request_error"
    return JSONResponse({"error": error_json(message, code=code, kind=kind, param=param)["error"]}, status_code=status)


async def refused_response(_request: Request, error: Exception) -> Response:
    """RequestRefused, as an HTTP answer."""
    if not isinstance(error, RequestRefused):
        raise error
    response = error_response(STATUS.get(error.code, 400), str(error), error.code, error.param)
    if error.code == REQUEST_IN_PROGRESS:
        response.headers["retry-after"] = "1"
    return response


async def overloaded_response(_request: Request, error: Exception) -> Response:
    """Overloaded, as an HTTP answer that says when to come back."""
    if not isinstance(error, Overloaded):
        raise error
    response = error_response(503, str(error), "server_overloaded")
    response.headers["retry-after"] = str(math.ceil(error.retry_after_s))
    return response
