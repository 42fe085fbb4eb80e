"""The Starlette application: the WebSocket, the HTTP routes and the page."""

from __future__ import annotations

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.routing import BaseRoute, Mount, Route, WebSocketRoute
from starlette.types import Lifespan

from duolog.ports.errors import Overloaded, RequestRefused
from duolog.realtime.access import ClientSecrets
from duolog.realtime.endpoint import RealtimeEndpoint
from duolog.realtime.http_api import HttpApi, overloaded_response, refused_response
from duolog.realtime.page import PageFiles, SecurityHeaders
from duolog.realtime.ports import AppPorts

REALTIME_PATHS = ("/v1/realtime", "/realtime", "/openai/v1/realtime")
"""The first is the one; clients that build the path themselves use the others."""


def build_app(ports: AppPorts, lifespan: Lifespan[Starlette] | None = None) -> Starlette:
    """The application. `lifespan`: what the composition root keeps running beside it."""
    client_secrets = ClientSecrets(ports.clock, ports.limits.max_client_secrets)
    endpoint = RealtimeEndpoint(ports, client_secrets)
    api = HttpApi(ports, client_secrets)
    routes: list[BaseRoute] = [WebSocketRoute(path, endpoint.connect) for path in REALTIME_PATHS]
    routes += [Route(f"{path}/client_secrets", api.client_secrets, methods=["POST"]) for path in REALTIME_PATHS]
    routes += [
        Route("/v1/personas", api.personas),
        Route("/v1/models", api.models),
        Route("/healthz", api.healthz),
        Route("/readyz", api.readyz),
        Route("/metrics", api.metrics),
    ]
    if ports.web_dir.is_dir():
        routes.append(Mount("/", PageFiles(ports.web_dir)))
    return Starlette(
        routes=routes,
        middleware=[Middleware(SecurityHeaders)],
        exception_handlers={RequestRefused: refused_response, Overloaded: overloaded_response},
        lifespan=lifespan,
    )
