"""What contrib ships for Prometheus and Grafana, against what relay exports."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from relay.metrics.meters import PrometheusMeter
from relay.metrics.names import COUNTERS, DATABASE, HISTOGRAMS, RUNNING
from tests.docs.pages import ROOT
from tests.metrics.test_meters import count_as_a_project_does

CONTRIB = ROOT / "contrib"
RULES = CONTRIB / "prometheus" / "relay.rules.yml"
DASHBOARDS = sorted((CONTRIB / "grafana").glob("*.json"))
NAMES = {*COUNTERS, *DATABASE, RUNNING, "relay_build_info"} | {
    name + suffix for name in HISTOGRAMS for suffix in ("_bucket", "_sum", "_count")
}


def promtool(*arguments: str, folder: Path = ROOT, text: str = "") -> str:
    done = subprocess.run(
        ["promtool", *arguments],
        cwd=folder,
        input=text,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def targets(dashboard: Path) -> Iterator[dict[str, Any]]:
    for panel in json.loads(dashboard.read_text())["panels"]:
        yield from panel["targets"]


@pytest.mark.promtool
def test_what_is_exported_passes_promtool() -> None:
    registry = CollectorRegistry()
    count_as_a_project_does(PrometheusMeter(registry), 3)

    promtool("check", "metrics", text=generate_latest(registry).decode())


@pytest.mark.promtool
def test_the_rules_pass_their_tests() -> None:
    promtool("check", "rules", RULES.name, folder=RULES.parent)
    promtool("test", "rules", "relay.rules.test.yml", folder=RULES.parent)


def test_every_rule_has_a_test() -> None:
    alerts = re.findall(r"alert: (\w+)", RULES.read_text())
    tests = RULES.with_name("relay.rules.test.yml").read_text()

    assert alerts
    assert [name for name in alerts if f"alertname: {name}\n" not in tests] == []


@pytest.mark.promtool
@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_every_question_of_a_dashboard_can_be_asked(path: Path, tmp_path: Path) -> None:
    rules = [
        {"record": "asked", "expr": _filled(target["expr"])} for target in targets(path)
    ]
    file = tmp_path / "rules.yml"
    # JSON is YAML.
    file.write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}))

    promtool("check", "rules", "--lint=none", str(file))


def _filled(expr: str) -> str:
    return re.sub(r"\$(queue|task)\b", ".*", expr).replace("$__rate_interval", "5m")


@pytest.mark.parametrize("path", [RULES, *DASHBOARDS], ids=lambda path: path.name)
def test_nothing_asks_for_a_metric_that_is_not_there(path: Path) -> None:
    text = path.read_text()
    if path != RULES:
        text = "\n".join(target["expr"] for target in targets(path))

    asked = set(re.findall(r"\brelay_[a-z_]+", text))

    assert asked
    assert asked <= NAMES | {"relay_job"}  # the table, as a label's value


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_a_dashboard_hangs_on_no_data_source_of_ours(path: Path) -> None:
    dashboard = json.loads(path.read_text())
    panels = dashboard["panels"]

    assert len({panel["id"] for panel in panels}) == len(panels)
    assert {panel["datasource"]["uid"] for panel in panels} == {"${datasource}"}
    assert dashboard["templating"]["list"][0]["type"] == "datasource"
