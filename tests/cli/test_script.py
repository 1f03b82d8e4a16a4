"""The console script: whom it talks to, profiles, completion."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from relay.cli import console, reference
from relay.cli.profiles import Profiles
from relay.cli.verbs.completion import _SCRIPTS
from tests.cli.conftest import Run

ROOT = Path(__file__).parent.parent.parent
PAGE = ROOT / "docs" / "reference" / "cli.md"


@pytest.fixture(autouse=True)
def nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DJANGO_SETTINGS_MODULE")


def test_without_anybody_to_talk_to_it_says_what_to_do(script: Run) -> None:
    result = script("jobs")

    assert (result.code, result.out) == (2, "")
    for remedy in ("--server", "RELAY_SERVER", "profile", "DJANGO_SETTINGS_MODULE"):
        assert remedy in result.err
    assert script("version").code == 0


def test_settings_that_read_a_file_that_is_not_there_are_told_of(
    script: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def setup() -> None:
        raise FileNotFoundError(2, "No such file", "/run/secrets/key")

    monkeypatch.setenv("DJANGO_SETTINGS_MODULE", "shop.settings")
    monkeypatch.setattr("django.setup", setup)
    result = script("jobs")

    assert (result.code, result.out) == (2, "")
    assert "DJANGO_SETTINGS_MODULE=shop.settings" in result.err
    assert "/run/secrets/key" in result.err


def test_a_profile_is_kept_for_its_owner_alone(script: Run, tmp_path: Path) -> None:
    url = "http://127.0.0.1:9"

    added = script("profile", "add", "here", f"{url}/", stdin="rly_secret\n")
    script("profile", "use", "here")
    listed = script("profile", "--json")

    file = tmp_path / "config" / "relay" / "profiles.json"
    assert added.code == 0
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert listed.json == [
        {"name": "here", "server": url, "has_token": True, "used": True}
    ]
    assert "rly_secret" not in added.out + added.err + listed.out
    # In use: it is asked, and does not answer.
    assert script("jobs").code == 4
    assert script("jobs", "--profile", "none").code == 3
    assert script("profile", "rm", "here").code == 0
    assert script("jobs").code == 2
    assert Profiles(file).by_name == {}


def test_a_file_of_profiles_that_others_can_read_is_refused(
    script: Run, tmp_path: Path
) -> None:
    script("profile", "add", "here", "http://127.0.0.1:9", stdin="\n")
    (tmp_path / "config" / "relay" / "profiles.json").chmod(0o644)

    result = script("jobs", "--profile", "here")

    assert result.code == 1
    assert "chmod 600" in result.err


def test_the_flag_counts_more_than_the_environment(
    script: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RELAY_SERVER", "http://127.0.0.1:8")

    assert "127.0.0.1:8 cannot be reached" in script("jobs").err
    assert "127.0.0.1:9 cannot" in script("jobs", "--server", "http://127.0.0.1:9").err
    assert "127.0.0.1:9 cannot" in script("--server", "http://127.0.0.1:9", "jobs").err


def test_a_token_that_travels_in_the_open_is_warned_of(
    script: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RELAY_TOKEN", "rly_secret")

    result = script("jobs", "--server", "http://relay.invalid")

    assert "unencrypted" in result.err
    assert "rly_secret" not in result.err
    assert "unencrypted" not in script("jobs", "--server", "https://relay.invalid").err


# --- completion ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (("can",), ["cancel"]),
        (("jobs", "sh"), ["show"]),
        (("jobs", "ls", "--st"), ["--state"]),
        (("jobs", "--st"), ["--state"]),
        (("completion", ""), ["bash", "fish", "zsh"]),
        (("export", "--format", ""), ["csv", "jsonl"]),
        (("cancel", ""), []),
        (("jobs", "ls", "--state", "fa"), ["failed"]),
    ],
)
def test_words_that_may_follow_are_told(
    script: Run, words: tuple[str, ...], found: list[str]
) -> None:
    assert script("completion", "words", "--", *words).lines == found


@pytest.mark.parametrize("shell", _SCRIPTS)
def test_the_script_of_a_shell_is_one_that_it_reads(script: Run, shell: str) -> None:
    text = script("completion", shell).out

    assert "relay completion words" in text
    if shutil.which(shell):
        subprocess.run([shell, "-n"], input=text, text=True, check=True)


@pytest.mark.slow
def test_bash_completes_by_the_script(tmp_path: Path, script: Run) -> None:
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "relay"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m relay.cli "$@"\n')
    program.chmod(0o755)
    typed = (
        script("completion", "bash").out
        + "COMP_LINE='relay jobs ls --sta '; COMP_POINT=19; _relay\n"
        + 'printf "%s\\n" "${COMPREPLY[@]}"\n'
    )

    done = subprocess.run(
        ["bash", "-c", typed],
        cwd=ROOT,
        env={**os.environ, "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    assert (done.stdout, done.stderr) == ("--state\n", "")


def test_bash_completes_a_name_with_a_colon(script: Run) -> None:
    typed = (
        script("completion", "bash").out
        + "relay() { [[ ${*: -1} == email:s ]] && echo email:send; }\n"
        + "COMP_LINE='relay enqueue email:s'; COMP_POINT=21; _relay\n"
        + 'printf "%s\\n" "${COMPREPLY[@]}"\n'
    )

    done = subprocess.run(
        ["bash", "-c", typed], capture_output=True, text=True, check=False
    )

    # What stands before the colon is on the line already.
    assert (done.stdout, done.stderr) == ("send\n", "")


# --- the tree ------------------------------------------------------------------------


def test_the_reference_is_what_the_verbs_say() -> None:
    assert PAGE.read_text(encoding="utf-8") == reference.page(), (
        "run: python -m relay.cli.reference > docs/reference/cli.md"
    )


def test_every_verb_says_what_it_does(capsys: pytest.CaptureFixture[str]) -> None:
    for name, parser in reference._verbs().items():
        for leaf in [parser] if parser.verbs is None else parser.verbs.values():
            assert leaf.description, (name, leaf.prog)
            leaf.format_help()
            assert leaf.get_default("run") is not None
            for action in leaf._actions:
                assert action.help, (leaf.prog, action.dest)
    with pytest.raises(SystemExit):
        console.main(["jobs", "--help"])
    assert "ls" in capsys.readouterr().out
