"""The board, the alerts and the scraping examples: valid, tested by promtool, and about metrics that exist."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import yaml

from duolog.settings import Settings
from duolog.strict_yaml import setting_paths
from duolog.telemetry.metrics import REGISTRY

pytestmark = pytest.mark.real
ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
RULES = DEPLOY / "prometheus" / "duolog.rules.yml"
RULE_TESTS = DEPLOY / "prometheus" / "duolog.rules.test.yml"
BOARD = json.loads((DEPLOY / "grafana" / "duolog.json").read_text(encoding="utf-8"))
OPERATIONS = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
OURS = re.compile(r"\b(?:duolog|inference|kv|llm|gpu|process)_[a-z_0-9]+\b")
COLUMNS = 24


def promtool(*arguments: str) -> None:
    program = shutil.which("promtool")
    if program is None:
        pytest.skip("promtool is not installed; `make prometheus` brings it")
    done = subprocess.run([program, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def exported() -> set[str]:
    """Every series name a scrape can have."""
    names: set[str] = set()
    for family in REGISTRY.collect():
        suffixes = {"counter": ("_total",), "histogram": ("_bucket", "_sum", "_count")}.get(family.type, ("",))
        names |= {family.name + suffix for suffix in suffixes}
    return names


def rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]
    return [rule for group in groups for rule in group["rules"]]


def alerts() -> dict[str, dict[str, Any]]:
    return {rule["alert"]: rule for rule in rules() if "alert" in rule}


def named_in(expression: str) -> set[str]:
    """The metrics an expression reads; recorded names and label matchers are left out."""
    bare = re.sub(r"\{[^}]*\}", "", re.sub(r'"[^"]*"', "", expression))
    return set(OURS.findall(re.sub(r"[a-z_]+:[a-z_0-9]+:[a-z_0-9]+", "", bare)))


def panels() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = BOARD["panels"]
    return found


def expressions() -> Iterator[str]:
    for panel in panels():
        for target in panel.get("targets", ()):
            yield target["expr"]


def test_the_rules_are_valid_and_do_what_they_say() -> None:
    promtool("check", "rules", str(RULES))
    promtool("test", "rules", str(RULE_TESTS))


@pytest.mark.parametrize("config", sorted(DEPLOY.rglob("prometheus.yml")), ids=lambda file: file.parent.name)
def test_the_scraping_examples_are_valid(config: Path) -> None:
    promtool("check", "config", "--syntax-only", str(config))
    jobs = {job["job_name"] for job in yaml.safe_load(config.read_text(encoding="utf-8"))["scrape_configs"]}
    assert "duolog" in jobs, "the alerts name the job"


def test_every_expression_of_the_board_parses(tmp_path: Path) -> None:
    board = [expression.replace("$__rate_interval", "5m") for expression in expressions()]
    board += [entry["expr"] for entry in BOARD["annotations"]["list"]]
    group = {"name": "board", "rules": [{"record": f"panel:{n}:x", "expr": each} for n, each in enumerate(board)]}
    file = tmp_path / "board.yml"
    file.write_text(json.dumps({"groups": [group]}), encoding="utf-8")
    promtool("check", "rules", str(file))


def test_board_and_rules_read_only_metrics_that_exist() -> None:
    read = [*expressions(), *(rule["expr"] for rule in rules())]
    read += [variable["definition"] for variable in BOARD["templating"]["list"] if "definition" in variable]
    named = {name for expression in read for name in named_in(expression)}
    assert len(named) > 40
    assert named <= exported()


def test_the_board_shows_every_metric_of_ours() -> None:
    shown = {name for expression in expressions() for name in named_in(expression)}
    counted = {re.sub(r"_(total|bucket|sum|count)$", "", name) for name in shown}
    ours = {family.name for family in REGISTRY.collect() if not family.name.startswith("process_")}
    assert counted >= ours, "give it a panel in deploy/grafana/duolog.json"


def test_recorded_names_are_recorded() -> None:
    recorded = {rule["record"] for rule in rules() if "record" in rule}
    used = {name for rule in rules() for name in re.findall(r"\b[a-z_]+:[a-z_0-9]+:[a-z_0-9]+", rule["expr"])}
    assert used
    assert used <= recorded


def test_every_alert_has_a_runbook_and_a_test_in_which_it_fires_and_one_in_which_it_does_not() -> None:
    tested = yaml.safe_load(RULE_TESTS.read_text(encoding="utf-8"))["tests"]
    cases = [case for test in tested for case in test.get("alert_rule_test", ())]
    assert {case["alertname"] for case in cases if case["exp_alerts"]} == alerts().keys()
    assert {case["alertname"] for case in cases if not case["exp_alerts"]} >= alerts().keys()
    for name, rule in alerts().items():
        assert rule["annotations"]["runbook_url"] == f"docs/operations.md#{name.lower()}"
        assert f"\n### {name}\n" in OPERATIONS
        assert rule["labels"]["severity"] in {"warning", "critical"}


def test_no_runbook_is_written_for_an_alert_that_there_is_not() -> None:
    assert set(re.findall(r"^### (Duolog\w+)$", OPERATIONS, flags=re.MULTILINE)) == alerts().keys()


def test_runbooks_name_settings_that_exist() -> None:
    known = {path for path, _ in setting_paths(Settings)}
    sections = "|".join({path.split(".")[0] for path in known if "." in path})
    runbooks = OPERATIONS[OPERATIONS.index("## Board and alerts") :]
    named = set(re.findall(rf"`((?:{sections})\.[a-z_.]+)", runbooks))
    assert len(named) > 5
    assert named <= known


def test_panels_have_ids_of_their_own_titles_descriptions_and_a_source() -> None:
    assert [each for each, count in Counter(panel["id"] for panel in panels()).items() if count > 1] == []
    for panel in panels():
        assert panel["title"]
        if panel["type"] != "row":
            assert panel["description"], panel["title"]
            assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
            references = [target["refId"] for target in panel["targets"]]
            assert len(references) == len(set(references)) > 0
            assert panel["type"] == "heatmap" or panel["fieldConfig"]["defaults"]["unit"], panel["title"]


def test_panels_lie_within_the_grid_and_over_no_other() -> None:
    places = [(panel["title"], panel["gridPos"]) for panel in panels()]
    for title, place in places:
        assert place["x"] >= 0, title
        assert place["x"] + place["w"] <= COLUMNS, title
    for (one, a), (other, b) in combinations(places, 2):
        beside = a["x"] + a["w"] <= b["x"] or b["x"] + b["w"] <= a["x"]
        assert beside or a["y"] + a["h"] <= b["y"] or b["y"] + b["h"] <= a["y"], (one, other)


def test_the_board_uses_no_variable_that_it_does_not_define() -> None:
    defined = {variable["name"] for variable in BOARD["templating"]["list"]}
    used = set(re.findall(r"\$\{?([a-z_]+)\}?", " ".join(expressions()))) - {"__rate_interval"}
    assert used | {"datasource"} == defined


def test_thresholds_rise() -> None:
    for panel in panels():
        steps = panel.get("fieldConfig", {}).get("defaults", {}).get("thresholds", {}).get("steps", [])
        values = [step["value"] for step in steps if step["value"] is not None]
        assert values == sorted(values), panel["title"]
        assert not steps or steps[0]["value"] is None, panel["title"]


def test_what_the_services_mount_is_there() -> None:
    services = yaml.safe_load((DEPLOY / "compose" / "compose.yaml").read_text(encoding="utf-8"))["services"]
    for service in ("prometheus", "grafana"):
        sources = [volume.split(":")[0] for volume in services[service]["volumes"]]
        mounted = [source for source in sources if source.startswith(".")]
        assert mounted
        for source in mounted:
            assert (DEPLOY / "compose" / source).exists(), source
