"""What `duolog up` would start, for different settings; and the embedded Valkey, really."""

from __future__ import annotations

from pathlib import Path

import anyio
import anyio.abc
import pytest
from anyio.abc import ByteStream

from duolog.compiler import compiles, missing_to_compile
from duolog.processes import children as under_test
from duolog.processes.backoff import Backoff
from duolog.processes.child import Child, explain_status, last_lines
from duolog.processes.children import children, claims, page_url, valkey, vllm, vllm_flags
from duolog.processes.prepare import prepare_models
from duolog.processes.probes import answers_http, answers_ping
from duolog.settings import (
    AsrSettings,
    Compile,
    LlmSettings,
    Profile,
    ServerSettings,
    Settings,
    SpeechEngine,
    StoreSettings,
    TtsSettings,
    VadSettings,
)

pytestmark = pytest.mark.real
REMOTE = Settings(llm=LlmSettings(base_url="http://gpu/v1"), store=StoreSettings(url="redis://cache"))


def test_by_default_everything_is_started_and_the_server_waits_for_the_store() -> None:
    specs = children(Settings(), "folder", None)
    assert [spec.name for spec in specs] == ["valkey", "vllm", "server"]
    assert specs[2].after == ("valkey",), "vLLM and the server load side by side"
    assert specs[2].provided == {"llm": ("vllm",)}
    assert [claim.setting for claim in claims(Settings())] == ["server.port", "llm.port", "store.port"]


def test_the_start_that_compiles_says_why_it_takes_long(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    compiled = tmp_path / "compiled"
    monkeypatch.setattr(under_test, "COMPILED", compiled)
    monkeypatch.setattr(under_test, "has_cpu_vllm", lambda: True)
    settings = Settings(llm=LlmSettings(compile=Compile.ON))
    assert "compiling the model" in vllm(settings, "folder").takes_long
    assert not vllm(Settings(llm=LlmSettings(compile=Compile.OFF)), "folder").takes_long
    compiled.mkdir()
    assert not vllm(settings, "folder").takes_long


def test_every_replica_of_vllm_has_its_own_port_and_log() -> None:
    settings = Settings(llm=LlmSettings(replicas=2))
    specs = children(settings, "folder", None)
    assert [spec.name for spec in specs] == ["valkey", "vllm", "vllm-2", "server"]
    assert ["--port=8001" in specs[1].command, "--port=8011" in specs[2].command] == [True, True]
    assert [claim.port for claim in claims(settings)] == [8000, 8001, 8011, 8002]


def test_what_is_elsewhere_is_not_started() -> None:
    specs = children(REMOTE, "", Path("my.yaml"))
    assert [spec.name for spec in specs] == ["server"]
    assert specs[0].after == ()
    assert not specs[0].provided["llm"], "what an external server answers is told as it is"
    assert specs[0].command[-2:] == ("--config", "my.yaml")
    assert [claim.setting for claim in claims(REMOTE)] == ["server.port"]


def test_vllm_on_a_cpu_gets_the_measured_flags(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(under_test, "has_cpu_vllm", lambda: True)
    spec = vllm(Settings(llm=LlmSettings(compile=Compile.OFF)), str(tmp_path))
    for flag in (
        "--enforce-eager",
        "--distributed-executor-backend=uni",
        "--block-size=32",
        "--scheduling-policy=priority",
        "--max-num-batched-tokens=256",
    ):
        assert flag in spec.command
    assert spec.environment["VLLM_CPU_KVCACHE_SPACE"] == "1"
    assert spec.environment["HF_HUB_OFFLINE"] == "1", "a folder needs no network"
    assert spec.environment["DO_NOT_TRACK"] == "1"


def test_vllm_on_a_cpu_compiles_where_it_can(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(under_test, "has_cpu_vllm", lambda: True)
    spec = vllm(Settings(llm=LlmSettings(compile=Compile.ON)), str(tmp_path))
    assert "--enforce-eager" not in spec.command
    assert Path(spec.environment["TORCHINDUCTOR_CACHE_DIR"]).is_absolute()


@pytest.mark.parametrize(
    ("found", "headers", "missing"), [(None, True, "g++"), ("/usr/bin/g++", False, "python3-dev"), ("g++", True, None)]
)
def test_what_compiling_lacks_is_named(
    found: str | None, headers: bool, missing: str | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    if headers:
        (tmp_path / "Python.h").touch()
    monkeypatch.setattr("shutil.which", lambda _name: found)
    monkeypatch.setattr("sysconfig.get_path", lambda _name: str(tmp_path))
    assert missing_to_compile() == missing
    assert compiles(Compile.AUTO) is (missing is None)
    assert compiles(Compile.ON)
    assert not compiles(Compile.OFF)


@pytest.mark.parametrize(("bound", "threads"), [("auto", "1"), ("0-3", None)])
def test_vllm_has_a_thread_for_each_core_it_is_given(
    bound: str, threads: str | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(under_test, "has_cpu_vllm", lambda: True)
    monkeypatch.setattr(under_test, "machine_cores", lambda: (0, 1))
    llm = LlmSettings(threads_bind=bound)
    environment = vllm(Settings(profile=Profile.TINY, llm=llm), str(tmp_path)).environment
    assert environment.get("OMP_NUM_THREADS") == threads
    assert "GOMP_SPINCOUNT" not in environment
    environment = vllm(Settings(llm=llm), str(tmp_path)).environment
    assert environment.get("OMP_NUM_THREADS") == (None if threads is None else "2")
    assert "GOMP_SPINCOUNT" in environment, "speech is on one of its cores"
    monkeypatch.setattr(under_test, "machine_cores", lambda: tuple(range(6)))
    environment = vllm(Settings(llm=LlmSettings(threads_bind=bound)), str(tmp_path)).environment
    assert environment.get("OMP_NUM_THREADS") == (None if threads is None else "4")


def test_vllm_on_a_gpu_compiles_and_takes_larger_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(under_test, "has_cpu_vllm", lambda: False)
    spec = vllm(Settings(), "some/hub-model")
    assert "--enforce-eager" not in spec.command
    assert "--block-size=16" in spec.command
    assert "HF_HUB_OFFLINE" not in spec.environment, "a hub id may be fetched"
    assert not [name for name in spec.environment if name.startswith("VLLM_CPU")]


def test_an_extra_flag_replaces_the_built_in_one() -> None:
    flags = vllm_flags(
        LlmSettings(extra_flags=("--block-size=64", "--trust-remote-code"), api_key="k"), on_cpu=True, port=1
    )
    assert "--block-size=64" in flags
    assert "--block-size=32" not in flags
    assert flags[-1] == "--trust-remote-code"
    assert "--api-key=k" in flags


@pytest.mark.parametrize(
    ("server", "url"),
    [
        (ServerSettings(), "http://127.0.0.1:8000"),
        (ServerSettings(host="0.0.0.0", port=9), "http://127.0.0.1:9"),
        (ServerSettings(host="box", tls_cert=Path("c"), tls_key=Path("k")), "https://box:8000"),
    ],
)
def test_the_page_is_where_a_browser_on_this_machine_finds_it(server: ServerSettings, url: str) -> None:
    assert page_url(Settings(server=server)) == url


def test_no_models_are_prepared_where_no_engine_needs_them() -> None:
    scripted = SpeechEngine.SCRIPTED
    settings = Settings(
        asr=AsrSettings(engine=scripted),
        vad=VadSettings(engine=scripted),
        tts=TtsSettings(engine=scripted),
        llm=REMOTE.llm,
    )
    assert prepare_models(settings, pytest.fail) == ""


def test_backoff_doubles_up_to_its_limit_and_forgets_after_calm() -> None:
    backoff = Backoff(first_s=1, max_s=4, limit=4)
    assert [backoff.after_crash(0) for _ in range(5)] == [1, 2, 4, 4, None]
    assert backoff.after_crash(alive_s=4) == 1


@pytest.mark.parametrize(
    ("status", "words"),
    [(1, "ended with status 1"), (137, "was killed (out of memory, perhaps)"), (143, "was ended by SIGTERM")],
)
def test_exit_statuses_are_told_in_words(status: int, words: str) -> None:
    assert explain_status(status) == words


def test_the_last_lines_of_a_log_leave_out_empty_ones(tmp_path: Path) -> None:
    log = tmp_path / "x.log"
    log.write_text("one\n\ntwo\nthree\nfour\n\n")
    assert last_lines(log) == "    two\n    three\n    four"
    assert last_lines(tmp_path / "absent") == ""


async def test_probes_say_no_where_nobody_listens(free_port: int) -> None:
    assert await answers_http(f"http://127.0.0.1:{free_port}/")() == {}
    assert await answers_ping("127.0.0.1", free_port)() == {}


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", None),
        (b"HTTP/1.1 503 No\r\ncontent-length: 4\r\n\r\nwait", {}),
        (
            b"HTTP/1.1 503 No\r\nconnection: close\r\n\r\n"
            b'{"parts": {"asr": {"ready": true}, "tts": {"ready": false, "detail": "loading the voices"}}}',
            {"tts": "loading the voices"},
        ),
        (b"nonsense", {}),
    ],
)
async def test_the_http_probe_passes_on_what_the_server_waits_for(
    answer: bytes, expected: dict[str, str] | None
) -> None:
    async def serve(stream: ByteStream) -> None:
        async with stream:
            await stream.receive()
            await stream.send(answer)

    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener, anyio.create_task_group() as group:
        group.start_soon(listener.serve, serve)
        port = listener.extra(anyio.abc.SocketAttribute.local_port)
        assert await answers_http(f"http://127.0.0.1:{port}/readyz")() == expected
        group.cancel_scope.cancel()


async def test_the_embedded_valkey_gets_ready_and_stops(free_port: int, tmp_path: Path) -> None:
    spec = valkey(Settings(store=StoreSettings(port=free_port)))
    child = await Child.start(spec, tmp_path / "valkey.log", grace_s=2)
    try:
        with anyio.fail_after(10):
            while await spec.waits_for() is not None:  # noqa: ASYNC110 - another process decides
                await anyio.sleep(0.02)
    finally:
        await child.stop()
    assert await spec.waits_for() == {}
