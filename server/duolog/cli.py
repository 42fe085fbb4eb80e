"""The `duolog` command. Each sub-command imports what it needs when it runs, so that `--help` is quick."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from duolog.ports.errors import DuologError

if TYPE_CHECKING:
    from duolog.settings import Settings

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="A real-time voice call with a self-hosted language model.",
)
personas = typer.Typer(no_args_is_help=True, help="The personas one can talk to.")
app.add_typer(personas, name="personas")

ConfigOption = Annotated[
    Path | None,
    typer.Option("--config", envvar="DUOLOG_CONFIG", help="Settings file; configs/duolog.yaml where it exists."),
]
PASS_ON = {"allow_extra_args": True, "ignore_unknown_options": True}
"""The sub-command parses its own arguments, `--help` included."""


def main() -> None:
    """Entry point. A DuologError is one sentence on stderr and exit status 2, never a traceback."""
    try:
        app(prog_name="duolog")
    except DuologError as error:
        print(f"duolog: {error}", file=sys.stderr)
        sys.exit(2)


@app.command()
def up(config: ConfigOption = None) -> None:
    """Start everything a call needs, and the server; Ctrl-C stops it all."""
    import anyio  # noqa: PLC0415

    from duolog.processes.children import children  # noqa: PLC0415
    from duolog.processes.prepare import prepare_models  # noqa: PLC0415
    from duolog.processes.up import up as run_up  # noqa: PLC0415

    settings = _settings(config)
    model = prepare_models(settings, typer.echo)
    anyio.run(run_up, settings, children(settings, model, config), typer.echo)


@app.command()
def serve(
    config: ConfigOption = None,
    tls_cert: Annotated[Path | None, typer.Option(help="PEM certificate chain; phones need TLS.")] = None,
    tls_key: Annotated[Path | None, typer.Option(help="PEM key of the certificate.")] = None,
) -> None:
    """Run the server alone: the LLM server and the store are elsewhere, or come later."""
    import anyio  # noqa: PLC0415

    from duolog.processes.port_claims import PortClaim, check_ports  # noqa: PLC0415
    from duolog.telemetry.logs import configure_logs  # noqa: PLC0415

    given = {"DUOLOG__SERVER__TLS_CERT": tls_cert, "DUOLOG__SERVER__TLS_KEY": tls_key}
    settings = _settings(config, {name: str(value) for name, value in given.items() if value is not None})
    check_ports([PortClaim("server.port", settings.server.host, settings.server.port)])
    json = settings.logging.format == "json" or (settings.logging.format == "auto" and not sys.stderr.isatty())
    configure_logs(settings.logging.level, json=json, pii=settings.logging.pii)
    anyio.run(import_module("duolog.app").serve, settings, backend_options={"use_uvloop": True})


@app.command(context_settings=PASS_ON, add_help_option=False)
def doctor(context: typer.Context) -> None:
    """Check every part of this installation and say how to mend what is wrong."""
    _run_command("duolog.doctor", "doctor", context)


@app.command(context_settings=PASS_ON, add_help_option=False)
def models(context: typer.Context) -> None:
    """Fetch, list, check and import models."""
    _run_command("duolog.models.commands", "app", context)


@app.command(context_settings=PASS_ON, add_help_option=False)
def call(context: typer.Context) -> None:
    """Place a call with recorded speech and print what was said, and when."""
    _run_command("duolog.loadtest.call_command", "call", context)


@app.command(context_settings=PASS_ON, add_help_option=False)
def loadtest(context: typer.Context) -> None:
    """Place many calls as chance would and report how long callers wait; can search for the most calls that hold."""
    _run_command("duolog.loadtest.load_command", "loadtest", context)


@personas.command("check")
def check_personas(
    folder: Annotated[
        Path | None, typer.Argument(help="Folder of persona files; the settings' own if left out.")
    ] = None,
    config: ConfigOption = None,
) -> None:
    """Load every persona and list them; a wrong file is named with its line."""
    from duolog.personas import PersonaLibrary  # noqa: PLC0415

    settings = _settings(config)
    library = PersonaLibrary(folder or settings.personas.folder, settings.personas.default)
    for persona in library.all():
        typer.echo(f"{persona.id:<12} {','.join(persona.languages):<8} {persona.name}: {persona.description}")


@app.command()
def version() -> None:
    """Print the version."""
    from duolog import __version__  # noqa: PLC0415

    typer.echo(__version__)


def _settings(config: Path | None, given: dict[str, str] | None = None) -> Settings:
    """The settings; `given` are options of the command line, under their environment names."""
    from duolog.settings import load_settings  # noqa: PLC0415

    return load_settings(config, {**os.environ, **(given or {})})


def _run_command(module: str, name: str, context: typer.Context) -> None:
    """Hand the rest of the command line to a typer application or function of another module."""
    target = getattr(import_module(module), name)
    if not isinstance(target, typer.Typer):
        function, target = target, typer.Typer(add_completion=False, pretty_exceptions_enable=False)
        target.command()(function)
    target(args=context.args, prog_name=f"duolog {context.info_name}")
