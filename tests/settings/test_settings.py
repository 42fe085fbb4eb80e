"""Settings from file and environment: what is taken, and how exactly a mistake is named."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

from duolog.ports.errors import ConfigurationError
from duolog.settings import Profile, Settings, load_settings
from duolog.strict_yaml import parse_document, setting_paths

pytestmark = pytest.mark.pure
ROOT = Path(__file__).resolve().parents[2]


def settings(tmp_path: Path, text: str, **environment: str) -> Settings:
    file = tmp_path / "duolog.yaml"
    file.write_text(text, encoding="utf-8")
    return load_settings(file, environment)


def refusal(tmp_path: Path, text: str, **environment: str) -> str:
    with pytest.raises(ConfigurationError) as caught:
        settings(tmp_path, text, **environment)
    return str(caught.value).replace(f"{tmp_path}/", "")


def test_the_shipped_file_changes_nothing_and_names_every_setting_with_its_default(tmp_path: Path) -> None:
    text = (ROOT / "configs" / "duolog.yaml").read_text(encoding="utf-8")
    assert load_settings(ROOT / "configs" / "duolog.yaml", {}) == Settings()

    uncommented = re.sub(r"^(\s*)# (\w+:.*)$", r"\1\2", text, flags=re.MULTILINE)
    document = parse_document(uncommented, "uncommented")
    written = {".".join(str(part) for part in path) for path in document.origins}
    assert {path for path, _ in setting_paths(Settings)} <= written
    assert settings(tmp_path, uncommented) == Settings()


def test_file_values_and_environment_on_top(tmp_path: Path) -> None:
    made = settings(
        tmp_path,
        "profile: tiny\nserver:\n  port: 8010\n  max_calls: 4\n",
        DUOLOG__SERVER__PORT="8020",
        DUOLOG__SERVER__API_KEYS="one, two",
        DUOLOG__ASR__CORES="[1, 2]",
        DUOLOG__TTS__VOICES="{anna: /voices/anna}",
        DUOLOG__LLM__BASE_URL="null",
        DUOLOG__TTS__ONNX="false",
        DUOLOG__SERVER__ALLOWED_ORIGINS="",
        UNRELATED="x",
    )
    assert made.profile is Profile.TINY
    assert (made.server.port, made.server.max_calls, made.server.api_keys) == (8020, 4, ("one", "two"))
    assert made.asr.cores == (1, 2)
    assert made.tts.voices == {"anna": Path("/voices/anna")}
    assert made.llm.base_url is None
    assert not made.tts.onnx


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "server:\n  prot: 3\n",
            "duolog.yaml, line 2: unknown key `server.prot`; did you mean `port`? Allowed here: host",
        ),
        ("\nservr: {}\n", "duolog.yaml, line 2: unknown key `servr`; did you mean `server`?"),
        (
            "server:\n  port: 80000\n",
            "duolog.yaml, line 2: `server.port`: input should be less than or equal to 65535.",
        ),
        ("profile: huge\n", "duolog.yaml, line 1: `profile`: input should be 'tiny' or 'small'."),
        ("asr:\n  cores: [0,\n    x]\n", "duolog.yaml, line 3: `asr.cores.1`: input should be a valid integer"),
        ("server:\n  port: 1\n  port: 2\n", "duolog.yaml, line 3: `server.port` is given twice"),
        ("a: [\n", "duolog.yaml, line 2: not valid YAML"),
        ("- a\n", "duolog.yaml, line 1: expected `key: value` lines"),
        ("server: 3\n", "duolog.yaml, line 1: `server`: input should be"),
        ("llm:\n  port: 8000\n", "`server.port` and `llm.port` are both 8000; give each its own port."),
        ("server:\n  tls_cert: x.pem\n", "`server.tls_cert` and `server.tls_key` go together"),
        ("server:\n  tls_cert: x.pem\n  tls_key: y.pem\n", "`server.tls_cert` is x.pem, and there is no such file"),
    ],
)
def test_a_mistake_is_named_with_its_place(tmp_path: Path, text: str, message: str) -> None:
    assert refusal(tmp_path, text).startswith(message)


def test_a_wrong_environment_variable_is_named_as_such(tmp_path: Path) -> None:
    assert refusal(tmp_path, "", DUOLOG__SERVER__PROT="1").startswith(
        "environment variable DUOLOG__SERVER__PROT: unknown key `server.prot`; did you mean `port`?"
    )
    assert "environment variable DUOLOG__ASR__CORES is not valid YAML" in refusal(tmp_path, "", DUOLOG__ASR__CORES="[")


def test_every_mistake_is_told_at_once(tmp_path: Path) -> None:
    assert refusal(tmp_path, "profile: x\nserver:\n  port: y\n").count("\n") == 1


def test_a_missing_file_is_an_error_and_no_file_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigurationError, match=r"absent\.yaml cannot be read"):
        load_settings(tmp_path / "absent.yaml", {})
    monkeypatch.chdir(tmp_path)
    assert load_settings(None, {}) == Settings()


def test_secrets_are_not_shown(tmp_path: Path) -> None:
    made = settings(tmp_path, "server:\n  api_keys: [hush]\nllm:\n  api_key: hush\nstore:\n  url: redis://u:hush@h\n")
    assert "hush" not in repr(made)
    assert made.server.api_keys == ("hush",)


def test_settings_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        Settings().server.port = 1  # type: ignore[misc]


def test_addresses_follow_from_what_is_started_here(tmp_path: Path) -> None:
    own = Settings()
    assert (own.llm_url, own.llm_model, own.store_url) == (
        "http://127.0.0.1:8001/v1",
        "duolog",
        "redis://127.0.0.1:8002/0",
    )
    remote = settings(tmp_path, "llm: {base_url: 'http://g/v1', model: m}\nstore: {url: 'redis://c'}\n")
    assert (remote.llm_url, remote.llm_model, remote.store_url) == ("http://g/v1", "m", "redis://c")
    assert not remote.starts_vllm
    assert not remote.starts_valkey
    several = settings(tmp_path, "llm: {base_urls: ['http://g/v1', 'http://h/v1'], model: m}\n")
    assert (several.llm_urls, several.llm_model, several.llm_ports) == (("http://g/v1", "http://h/v1"), "m", ())
    assert not several.starts_vllm


def test_own_replicas_listen_at_every_tenth_port(tmp_path: Path) -> None:
    made = settings(tmp_path, "llm: {replicas: 3, port: 9001}\n")
    assert made.llm_ports == (9001, 9011, 9021)
    assert made.llm_urls == tuple(f"http://127.0.0.1:{port}/v1" for port in made.llm_ports)
    assert "`llm.port (replica 2)` are both 9011" in refusal(
        tmp_path, "llm: {replicas: 2, port: 9001}\nserver: {port: 9011}\n"
    )
    assert "exclude each other" in refusal(tmp_path, "llm: {base_url: 'http://g', base_urls: ['http://h']}\n")
