"""The command line: quick help, one sentence for an error, sub-commands of other modules."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
import typer
from typer.testing import CliRunner

from duolog import __version__, cli
from duolog.ports.errors import ConfigurationError
from duolog.settings import Settings

pytestmark = pytest.mark.real
ROOT = Path(__file__).resolve().parents[2]
HEAVY = ("torch", "numpy", "pydantic", "httpx", "starlette", "structlog")


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "duolog", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)


@pytest.mark.slow
def test_help_loads_nothing_heavy() -> None:
    program = (
        "import sys\nfrom duolog.cli import app\n"
        "try: app(['--help'])\nexcept SystemExit: pass\n"
        f"print([name for name in {HEAVY} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.splitlines()[-1] == "[]"
    for command in ("up", "serve", "doctor", "models", "call", "loadtest", "personas", "version"):
        assert command in done.stdout


@pytest.mark.slow
def test_an_error_is_one_sentence_and_status_2(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text("server:\n  prot: 1\n")
    done = run("serve", "--config", str(wrong))
    assert done.returncode == 2
    assert done.stderr.startswith(f"duolog: {wrong}, line 2: unknown key `server.prot`; did you mean `port`?")
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_python_dash_m_duolog_is_the_command() -> None:
    assert run("version").stdout == f"{__version__}\n"


def test_personas_check_lists_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    shown = CliRunner().invoke(cli.app, ["personas", "check"]).output
    assert shown.startswith("ava ")
    assert "xiaolin" in shown


def test_personas_check_of_a_broken_folder(tmp_path: Path) -> None:
    (tmp_path / "ava.yaml").write_text("nme: x\n")
    result = CliRunner().invoke(cli.app, ["personas", "check", str(tmp_path)])
    assert isinstance(result.exception, ConfigurationError)


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    module = ModuleType("stand_in")
    monkeypatch.setitem(sys.modules, "duolog.loadtest.call_command", module)
    monkeypatch.setitem(sys.modules, "duolog.models.commands", module)
    return module


def test_call_gets_the_rest_of_the_line(stand_in: ModuleType) -> None:
    def call(wav: str, persona: str = "ava") -> None:
        typer.echo(f"{wav} {persona}")

    stand_in.call = call  # type: ignore[attr-defined]
    result = CliRunner().invoke(cli.app, ["call", "question.wav", "--persona", "pip"])
    assert (result.output, result.exit_code) == ("question.wav pip\n", 0)
    assert "--persona" in CliRunner().invoke(cli.app, ["call", "--help"]).output


def test_models_hands_over_to_an_application_with_its_status(stand_in: ModuleType) -> None:
    other = typer.Typer()

    @other.command()
    def listing() -> None:
        raise typer.Exit(3)

    @other.command()
    def verify() -> None:
        typer.echo("fine")

    stand_in.app = other  # type: ignore[attr-defined]
    assert CliRunner().invoke(cli.app, ["models", "listing"]).exit_code == 3
    assert CliRunner().invoke(cli.app, ["models", "verify"]).output == "fine\n"


def test_serve_hands_the_settings_to_the_server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    certificate.touch()
    key.touch()
    served: list[Settings] = []

    async def serve(settings: Settings) -> None:
        served.append(settings)

    application = ModuleType("duolog.app")
    application.serve = serve  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "duolog.app", application)
    monkeypatch.setattr("duolog.telemetry.logs.configure_logs", lambda *_args, **_options: None)
    monkeypatch.setenv("DUOLOG__SERVER__PORT", "8123")

    result = CliRunner().invoke(cli.app, ["serve", "--tls-cert", str(certificate), "--tls-key", str(key)])

    assert result.exit_code == 0, result.output
    [settings] = served
    assert (settings.server.port, settings.server.tls_cert, settings.server.tls_key) == (8123, certificate, key)
