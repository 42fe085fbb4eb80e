"""POST requests with an `Idempotency-Key` are carried out once; who sends one again gets the first answer.

As HTTP APIs have it: 409 with Retry-After while the first is under way, 422 where the key comes with another body.
"""

from __future__ import annotations

import json
from collections.abc import Callable

from starlette.requests import Request

from duolog.ports.errors import RequestRefused
from duolog.ports.idempotency import Standing
from duolog.realtime.access import bearer_key
from duolog.serving.idempotency import Begun, DifferentRequest, Idempotency, RequestKey, count_repeat

HEADER = "Idempotency-Key"
MAX_KEY_CHARS = 255
WAIT_S = 3.0
"""Longest wait for the first request's answer."""
REQUEST_IN_PROGRESS = "idempotency_request_in_progress"
KEY_REUSED = "idempotency_key_reused"


class RepeatedRequests:
    """One per application."""

    def __init__(self, idempotency: Idempotency | None) -> None:
        """None: nothing is protected."""
        self._idempotency = idempotency

    async def once(
        self, request: Request, body: bytes, carry_out: Callable[[], dict[str, object]], *, keep_s: float
    ) -> dict[str, object]:
        """The JSON object that `carry_out` gives, now or before. What raises there has not been carried out.

        Raises RequestRefused.
        """
        asked = _request_key(request, body)
        if self._idempotency is None or asked is None:
            return carry_out()
        begun = await self._begun(self._idempotency, asked)
        if begun.standing is Standing.DONE:
            first: dict[str, object] = json.loads(begun.result)
            return first
        try:
            answer = carry_out()
            self._idempotency.finish(asked, begun.owner, json.dumps(answer).encode(), keep_s)
        finally:
            self._idempotency.release(asked, begun.owner)  # without effect where it has finished
        return answer

    async def _begun(self, idempotency: Idempotency, asked: RequestKey) -> Begun:
        try:
            begun = await idempotency.begin(asked)
            waited = begun.standing is Standing.RUNNING
            if waited:
                begun = await idempotency.wait(asked, WAIT_S)
        except DifferentRequest as error:
            count_repeat("http", "differs")
            message = f"This {HEADER} came before with another body; send each request with a key of its own."
            raise RequestRefused(message, code=KEY_REUSED, param=HEADER) from error
        if begun.standing is Standing.RUNNING:
            count_repeat("http", "refused")
            message = f"The first request with this {HEADER} is still under way; send it again in a moment."
            raise RequestRefused(message, code=REQUEST_IN_PROGRESS, param=HEADER)
        if begun.standing is Standing.DONE:
            count_repeat("http", "waited" if waited else "replayed")
        return begun


def _request_key(request: Request, body: bytes) -> RequestKey | None:
    """Names the caller by the API key it came with: nobody gets another caller's answer by guessing."""
    key = request.headers.get(HEADER)
    if key is None:
        return None
    if not 0 < len(key) <= MAX_KEY_CHARS:
        message = f"An {HEADER} has 1 to {MAX_KEY_CHARS} characters."
        raise RequestRefused(message, code="invalid_value", param=HEADER)
    route = request.url.path.rpartition("/")[2]
    return RequestKey.of("http", (route, bearer_key(request.headers) or "", key), body)
