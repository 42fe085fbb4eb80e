"""Models before children: what the settings need is fetched and converted, with progress, before anything starts."""

from __future__ import annotations

from collections.abc import Callable

from duolog.models.manifest import load_manifest
from duolog.models.store import GB, MB, ModelStore
from duolog.settings import Settings, SpeechEngine

Say = Callable[[str], None]


def prepare_models(settings: Settings, say: Say) -> str:
    """Make the profile's models ready; returns the model of the own vLLM, folder or hub id, empty where it has none.

    Blocks, for minutes the first time. Raises ModelMissing, ConfigurationError.
    """
    if not _needs_models(settings):
        return ""
    store = ModelStore(settings.models_dir.absolute(), load_manifest())
    estimate = store.estimate(settings.profile)
    if estimate.names:
        say(
            f"Preparing {', '.join(estimate.names)}: {estimate.download_bytes / MB:.0f} MB to download, "
            f"{estimate.disk_bytes / GB:.1f} GB of free disk needed"
        )
        store.prepare(settings.profile, lambda line: say(f"  models   {line}"))
    if not settings.starts_vllm:
        return ""
    return settings.llm.model or str(store.path(store.manifest.profile(settings.profile).llm))


def _needs_models(settings: Settings) -> bool:
    engines = (settings.asr.engine, settings.vad.engine, settings.tts.engine)
    return settings.starts_vllm or settings.embeds_llm or SpeechEngine.MODEL in engines
