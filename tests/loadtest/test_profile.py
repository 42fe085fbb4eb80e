"""Load profiles: what ships is valid, what is wrong is named with its line."""

from __future__ import annotations

from pathlib import Path

import pytest

from duolog.loadtest.profile import LoadProfile, Mode, load_profile
from duolog.ports.errors import ConfigurationError

pytestmark = pytest.mark.pure

SHIPPED = Path(__file__).resolve().parents[2] / "configs" / "loadtest"


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    return path


@pytest.mark.parametrize("name", [path.name for path in sorted(SHIPPED.glob("*.yaml"))])
def test_shipped_profiles_load(name: str) -> None:
    profile = load_profile(SHIPPED / name)
    assert profile.name == name.removesuffix(".yaml")
    assert sum(phase.seconds for phase in profile.load) <= profile.bounds.most_s


def test_the_built_in_profile_is_the_shipped_one() -> None:
    assert load_profile(None) == load_profile(SHIPPED / "talk.yaml") == LoadProfile()
    assert load_profile(SHIPPED / "text.yaml").mode is Mode.TEXT


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            "mix:\n  barge: 1\n",
            "line 2: unknown key `mix.barge`; did you mean `barge_in`? Allowed here: talk, barge_in,",
        ),
        (
            "load:\n  - {name: a, seconds: 5, calls: 1}\n  - name: b\n    secs: 3\n    calls: 1\n",
            "line 4: unknown key `load.1.secs`; did you mean `seconds`? Allowed here: name, seconds, calls, from",
        ),
        ("load:\n  - {name: a, calls: 1}\n", "line 2: `load.0.seconds` is missing; add it."),
        ("pacing:\n  gap_s: [9, 3]\n", "line 2: `pacing.gap_s`: write the smaller number first."),
        ("mode: song\n", "line 1: `mode`: input should be 'voice' or 'text'."),
        ("turns: 3\n", "line 1: `turns`: input should be a valid tuple."),
        ("load:\n  - {name: a, seconds: 5, calls: 1, counts: false}\n", "no phase of `load` counts"),
        ("load:\n  - {name: a, seconds: 5, calls: 0}\n", "no phase of `load` has calls"),
        ("search: {first_calls: 9, most_calls: 3}\n", "`search.first_calls` is above `search.most_calls`"),
        ("load: []\n", "line 1: `load`: tuple should have at least 1 item"),
        ("mix: {talk: 0}\n", "line 1: `mix.talk`: input should be greater than 0."),
    ],
)
def test_a_mistake_is_named_with_its_line(tmp_path: Path, text: str, sentence: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(ConfigurationError) as caught:
        load_profile(path)
    assert str(caught.value).startswith(str(path))
    assert sentence in str(caught.value)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="cannot be read"):
        load_profile(tmp_path / "absent.yaml")
