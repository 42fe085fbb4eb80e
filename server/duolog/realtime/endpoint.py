"""`/v1/realtime`: lets a client in, opens its call, and is the edge where a call's failure ends.

Before the handshake a client that may not come in is denied with an HTTP status; a browser, which cannot see that, is
let in for one `error` event and a close code.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import structlog
from starlette.responses import JSONResponse
from starlette.websockets import WebSocket, WebSocketDisconnect

from duolog.ports.errors import DuologError, Overloaded, RequestRefused
from duolog.realtime.access import (
    CLIENT_SECRET_PREFIX,
    REALTIME_SUBPROTOCOL,
    ClientSecrets,
    asks_for_beta,
    bearer_key,
    browser_key,
    key_matches,
    origin_allowed,
)
from duolog.realtime.commands import ClientCommands
from duolog.realtime.connection import (
    INTERNAL_ERROR,
    POLICY_VIOLATION,
    SERVICE_RESTART,
    TRY_AGAIN_LATER,
    RealtimeConnection,
    close_socket,
)
from duolog.realtime.frames import Frame
from duolog.realtime.ports import AppPorts, ClientOptions
from duolog.realtime.rendering import error_json
from duolog.realtime.repeats import RepeatedEvents
from duolog.realtime.server_messages import ErrorMessage
from duolog.realtime.session_messages import SessionPayload
from duolog.realtime.session_update import EffectiveSession, SessionMerger
from duolog.realtime.translator import Translator
from duolog.realtime.wire_session import WireSession
from duolog.session.control import CallControl

EXTENSION_INPUT_RATE_HZ = 16_000

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Admission:
    """What is known of a client that may come in."""

    persona: str | None
    resume: str | None
    options: ClientOptions
    session: SessionPayload | None
    """To begin with, from its client secret or the query."""


class RealtimeEndpoint:
    """One per application."""

    def __init__(self, ports: AppPorts, client_secrets: ClientSecrets) -> None:
        self._ports = ports
        self._secrets = client_secrets
        self._repeats: dict[str, RepeatedEvents] = {}
        """Of the open connections, by session id."""

    async def connect(self, socket: WebSocket) -> None:
        """One client, from handshake to close."""
        if not origin_allowed(socket.headers, self._ports.allowed_origins):
            await _deny(
                socket,
                403,
                "origin_not_allowed",
                "Pages of this origin may not open calls here; add it to the allowed origins.",
            )
            return
        subprotocols = socket.scope.get("subprotocols", [])
        from_browser = browser_key(subprotocols)
        key = from_browser or bearer_key(socket.headers)
        if not self._key_valid(key):
            await self._refuse_key(socket, in_subprotocol=from_browser is not None)
            return
        await _accept(socket)
        if asks_for_beta(socket.headers, subprotocols):
            message = "The beta protocol is not spoken here; leave out the OpenAI-Beta header and use the GA events."
            await self._refuse(socket, error_json(message, code="beta_api_shape_disabled"), POLICY_VIOLATION)
            return
        with self._ports.drain.connection():
            await self._hold_call(socket, self._admission(socket, key))

    def _key_valid(self, key: str | None) -> bool:
        if self._secrets.find(key) is not None:
            return True
        if key is not None and key.startswith(CLIENT_SECRET_PREFIX):
            return False
        return not self._ports.api_keys or key_matches(key, self._ports.api_keys)

    async def _refuse_key(self, socket: WebSocket, *, in_subprotocol: bool) -> None:
        message = "The API key is missing, wrong or expired; send it as 'Authorization: Bearer <key>'."
        if not in_subprotocol:
            await _deny(socket, 401, "invalid_api_key", message)
            return
        await _accept(socket)
        await self._refuse(socket, error_json(message, code="invalid_api_key"), POLICY_VIOLATION)

    def _admission(self, socket: WebSocket, key: str | None) -> Admission:
        query = socket.query_params
        secret = self._secrets.find(key)
        session = secret.session if secret is not None else None
        if session is None and query.get("intent") == "transcription":
            session = SessionPayload(type="transcription")
        extensions = query.get("duolog") == "1"
        asked = query.get("model") or (session.model if session is not None else None)
        known = {one.id for one in self._ports.personas()}
        options = ClientOptions(extensions=extensions, greeting=query.get("greeting") == "1")
        if extensions:
            options = replace(options, input_rate_hz=EXTENSION_INPUT_RATE_HZ)
        return Admission(asked if asked in known else None, query.get("session") or None, options, session)

    async def _hold_call(self, socket: WebSocket, admission: Admission) -> None:
        if self._ports.drain.begun:
            reason = self._ports.drain.reason
            gone = error_json(reason, code="server_shutting_down", kind="server_error")
            await self._refuse(socket, gone, SERVICE_RESTART)
            return
        try:
            async with self._ports.open_call(admission.persona, admission.resume, admission.options) as call:
                await self._converse(socket, call, admission)
        except Overloaded as error:
            message = f"{error} Try again in {error.retry_after_s:.0f} s."
            full = error_json(message, code="session_limit_reached", kind="server_error")
            if admission.options.extensions:
                full["error"]["retry_after_s"] = error.retry_after_s
            await self._refuse(socket, full, TRY_AGAIN_LATER)
        except WebSocketDisconnect:
            log.info("client left during the handshake")
        except DuologError as error:
            log.warning("call not opened", reason=str(error))
            failed = error_json(str(error), code="server_error", kind="server_error")
            await self._refuse(socket, failed, TRY_AGAIN_LATER)
        except Exception:  # The call edge: a failed call ends its own connection and nothing else.
            log.exception("call failed")
            failed = error_json("The call has failed; open a new one.", code="server_error", kind="server_error")
            await self._refuse(socket, failed, INTERNAL_ERROR)

    async def _converse(self, socket: WebSocket, call: CallControl, admission: Admission) -> None:
        extensions = admission.options.extensions
        session = self._initial_session(call)
        translator = Translator(session, extensions=extensions)
        merger = SessionMerger(
            session,
            personas=[one.id for one in self._ports.personas()],
            voices=self._ports.voices(),
            max_text_chars=self._ports.limits.max_text_chars,
        )
        commands = ClientCommands(call, translator, merger, extensions=extensions)
        if admission.session is not None:
            self._begin_with(admission.session, commands)
        with self._remembering(call, admission) as repeats:
            connection = RealtimeConnection(socket, call, commands, translator, repeats, self._ports)
            await self._run(connection, call, extensions=extensions)

    @contextmanager
    def _remembering(self, call: CallControl, admission: Admission) -> Iterator[RepeatedEvents]:
        """What this connection knows of its events; that of the one it takes the session over from ends here."""
        session_id = call.session_id
        if (taken_over := self._repeats.pop(session_id, None)) is not None:
            taken_over.close()
        repeats = RepeatedEvents(self._ports.idempotency, session_id, resumed=session_id == admission.resume)
        self._repeats[session_id] = repeats
        try:
            yield repeats
        finally:
            repeats.close()
            if self._repeats.get(session_id) is repeats:
                del self._repeats[session_id]

    async def _run(self, connection: RealtimeConnection, call: CallControl, *, extensions: bool) -> None:
        with structlog.contextvars.bound_contextvars(call=call.session_id):
            log.info("call opened", persona=call.config.persona, extensions=extensions)
            ending = await connection.run()
            log.info("call closed", code=ending.code, reason=ending.reason)

    def _begin_with(self, payload: SessionPayload, commands: ClientCommands) -> None:
        try:
            commands.update_session(payload)
        except RequestRefused as error:
            # It was checked when the secret was given out; a voice or persona may have gone since.
            log.warning("session of the client secret not applied", reason=str(error))

    def _initial_session(self, call: CallControl) -> EffectiveSession:
        expires_at = int(self._ports.clock.unix_time() + self._ports.limits.max_call_s)
        return EffectiveSession(call.config, WireSession.initial(call.session_id, expires_at, call.config))

    async def _refuse(self, socket: WebSocket, error: ErrorMessage, code: int) -> None:
        frame = Frame({"event_id": f"event_{uuid.uuid4().hex[:20]}", **error})
        await close_socket(
            socket, code, error["error"]["message"], last=frame, timeout_s=self._ports.limits.close_timeout_s
        )


async def _accept(socket: WebSocket) -> None:
    """Of the subprotocols only the one without a key in it is echoed."""
    offered = socket.scope.get("subprotocols", [])
    await socket.accept(subprotocol=REALTIME_SUBPROTOCOL if REALTIME_SUBPROTOCOL in offered else None)


async def _deny(socket: WebSocket, status: int, code: str, message: str) -> None:
    body = error_json(message, code=code)["error"]
    await socket.send_denial_response(JSONResponse({"error": body}, status_code=status))
