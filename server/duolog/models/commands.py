"""`duolog models …`: list, prepare and verify the model store; import a Piper voice. A thin shell over store.py."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from duolog.models.manifest import DEFAULT_MANIFEST, load_manifest
from duolog.models.store import GB, MB, ModelStore
from duolog.ports.errors import DuologError

app = typer.Typer(no_args_is_help=True, help="The embedded models: what there is, and making it ready.")

StoreFolder = Annotated[Path, typer.Option("--store", help="Folder of the model store.")]
ManifestFile = Annotated[Path, typer.Option("--manifest", help="The manifest.")]
ProfileName = Annotated[str, typer.Option("--profile", help="Which set of models: tiny or small.")]

DEFAULT_STORE = Path(".duolog/models")


def open_store(folder: Path = DEFAULT_STORE, manifest: Path = DEFAULT_MANIFEST) -> ModelStore:
    """The store that `folder` and `manifest` describe. Raises ConfigurationError."""
    return ModelStore(folder.absolute(), load_manifest(manifest))


@app.command("list")
def list_models(store: StoreFolder = DEFAULT_STORE, manifest: ManifestFile = DEFAULT_MANIFEST) -> None:
    """Show every model of the manifest and whether it is ready."""
    with _plain_errors():
        models = open_store(store, manifest)
        for name, entry in models.manifest.models.items():
            size = f"{entry.prepared_bytes / MB:.0f} MB"
            typer.echo(f"{name:18} {entry.task:5} {size:>8}  {models.state(name):9} {entry.licence:24} {entry.about}")


@app.command()
def prepare(
    profile: ProfileName = "small", store: StoreFolder = DEFAULT_STORE, manifest: ManifestFile = DEFAULT_MANIFEST
) -> None:
    """Fetch, check and convert the models of a profile. What is ready stays as it is."""
    with _plain_errors():
        models = open_store(store, manifest)
        estimate = models.estimate(profile)
        if not estimate.names:
            return
        typer.echo(
            f"Preparing {', '.join(estimate.names)}: {estimate.download_bytes / MB:.0f} MB to download, "
            f"{estimate.disk_bytes / GB:.1f} GB of free disk needed."
        )
        models.prepare(profile, lambda line: typer.echo(f"  {line}"))


@app.command()
def verify(
    profile: ProfileName = "small", store: StoreFolder = DEFAULT_STORE, manifest: ManifestFile = DEFAULT_MANIFEST
) -> None:
    """Read every byte of a profile's models and compare it with the hashes. Exit code 1 if something is wrong."""
    with _plain_errors():
        models = open_store(store, manifest)
        problems = [
            problem for name in models.manifest.required(profile) if (problem := models.verify(name)) is not None
        ]
        for problem in problems:
            typer.echo(problem, err=True)
        if problems:
            raise typer.Exit(1)
        typer.echo(f"All models of the profile {profile} match their hashes.")


@app.command("import-piper")
def import_piper(
    onnx: Annotated[Path, typer.Argument(help="The voice, <name>.onnx.")],
    out: Annotated[Path, typer.Option("--out", help="Folder for the Coqui voice.")],
    config: Annotated[Path | None, typer.Option("--config", help="Its JSON; default: <name>.onnx.json.")] = None,
) -> None:
    """Convert a Piper voice (VITS, one speaker) to a Coqui VITS folder."""
    from duolog.models import piper_import  # noqa: PLC0415 - brings torch, which no other command here needs

    with _plain_errors():
        piper_import.import_piper(onnx, config or onnx.with_name(f"{onnx.name}.json"), out)
        typer.echo(f"{out} holds the voice; name it under `tts.voices` in configs/duolog.yaml.")


@contextmanager
def _plain_errors() -> Iterator[None]:
    """Turn Duolog's errors into one line on stderr and exit code 1."""
    try:
        yield
    except DuologError as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(1) from error
