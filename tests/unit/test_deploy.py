"""What `deploy/` and the docs tell a person to run is what there is: commands, options, variables, files.

Whether systemd takes the units is looked at where it is installed.
"""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from configparser import RawConfigParser
from pathlib import Path
from typing import cast

import pytest
import typer
from typer.core import TyperGroup
from typer.testing import CliRunner

from frostline import config
from frostline.cli.main import app
from frostline.config import Settings
from frostline.errors import ConfigError
from frostline.gateway.server import Gateway

ROOT = Path(__file__).parents[2]
UNITS = sorted((ROOT / "deploy").glob("*.service"))
CONTAINER = ROOT / "deploy" / "Containerfile"
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md"))]
COMMANDS = cast(TyperGroup, typer.main.get_command(app))
PROGRAM = "/opt/frostline/bin/frostline"
# Of systemd 252, what is ours to use: systemd itself only warns of a key it does not know, and goes on without it.
KEYS = {
    "Unit": {"Description", "After", "Wants"},
    "Service": {
        *("User", "StateDirectory", "WorkingDirectory", "EnvironmentFile", "ExecStart", "Restart", "RestartSec"),
        *("KillMode", "TimeoutStopSec", "NoNewPrivileges", "ProtectSystem", "ProtectHome", "PrivateTmp"),
    },
    "Install": {"WantedBy"},
}


def accept(words: list[str]) -> None:
    """Parse a command line as the program does, without running it; a wrong one is a UsageError."""
    context = COMMANDS.make_context("frostline", list(words))
    name, command, arguments = COMMANDS.resolve_command(context, [*context._protected_args, *context.args])
    assert command is not None
    command.make_context(name, arguments, parent=context)


def unit(file: Path) -> RawConfigParser:
    read = RawConfigParser(strict=True)
    read.optionxform = str  # type: ignore[assignment, method-assign]
    read.read_string(file.read_text(encoding="utf-8"))
    return read


def instructions() -> list[tuple[str, str]]:
    """Of the Containerfile: name and the rest, lines that go on put together."""
    text = CONTAINER.read_text(encoding="utf-8").replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return [(line.partition(" ")[0], line.partition(" ")[2].strip()) for line in lines]


def shown(text: str) -> Iterator[str]:
    """The lines of `frostline ...` in blocks of a page, without their comments."""
    for block in re.findall(r"^```\w*\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
        for line in block.replace("\\\n", " ").splitlines():
            if re.match(r"(?:\S+/)?frostline ", line):
                yield line


def arguments(line: str) -> list[str]:
    """What the program is given: up to a pipe, a redirection or another command; `...` stands for anything."""
    words = shlex.split(line, comments=True)
    for at, word in enumerate(words):
        if word in ("|", ">", "<", "&&", ";"):
            words = words[:at]
            break
    return [word for word in words[1:] if word not in ("[...]", "...")]


@pytest.mark.parametrize("file", UNITS, ids=lambda file: file.stem)
def test_a_unit_starts_a_command_there_is(file: Path) -> None:
    read = unit(file)
    assert {section: set(read[section]) - known for section, known in KEYS.items()} == {name: set() for name in KEYS}
    assert set(read.sections()) == set(KEYS)
    program, *words = shlex.split(read["Service"]["ExecStart"])
    assert program == PROGRAM
    accept(words)
    # What it may write to, and where its settings come from, is what the comment above the unit says.
    assert read["Service"]["WorkingDirectory"] == f"/var/lib/{read['Service']['StateDirectory']}"
    if "run" in words:
        assert float(read["Service"]["TimeoutStopSec"]) >= Settings.model_validate({}).worker.grace + 30


def test_systemd_takes_the_units(tmp_path: Path) -> None:
    if (analyze := shutil.which("systemd-analyze")) is None:
        pytest.skip("systemd is not installed")
    for file in UNITS:  # where the program is to be there is none here
        text = file.read_text(encoding="utf-8").replace(PROGRAM, sys.executable)
        (tmp_path / file.name).write_text(text, encoding="utf-8")
    paths = [str(tmp_path / file.name) for file in UNITS]
    done = subprocess.run([analyze, "verify", *paths], capture_output=True, text=True, check=False)
    said = [line for line in done.stderr.splitlines() if str(tmp_path) in line or "frostline" in line]
    assert (done.returncode, said) == (0, [])


def test_variables_that_are_named_are_settings() -> None:
    known = {config.env_name(key) for key in config.keys()} | config.ENV_NOT_SETTINGS  # noqa: SIM118 (a module)
    named = {
        (file.name, name)
        for file in (*UNITS, CONTAINER, *PAGES)
        for name in re.findall(r"FROSTLINE_[A-Z0-9_]*[A-Z0-9]", file.read_text(encoding="utf-8"))
    }
    assert len(named) > 10
    assert {(file, name) for file, name in named if name not in known} == set()


def test_the_image_is_made_of_files_that_are_there_and_runs_commands_there_are() -> None:
    found = instructions()
    copied = [word for name, rest in found if name == "COPY" for word in rest.split()[:-1]]
    assert [path for path in copied if not (ROOT / path).exists()] == []
    assert {"pyproject.toml", "requirements.lock", "README.md", "LICENSE", "src"} <= set(copied)
    ran = [words for name, rest in found if name == "RUN" for words in map(shlex.split, rest.split("&&"))]
    ours = [words[1:] for words in ran if words[0] == "frostline"]
    assert ours == [["fetch", "--s3"]]
    (default,) = [re.findall(r'"([^"]*)"', rest) for name, rest in found if name == "CMD"]
    assert dict(found)["ENTRYPOINT"] == '["frostline"]'
    comments = re.findall(r"^#   podman run .* frostline (\w.*)$", CONTAINER.read_text(encoding="utf-8"), re.MULTILINE)
    assert len(comments) == 2
    for words in (*ours, default, *map(shlex.split, comments)):
        accept(words)


def test_the_image_listens_where_postgres_can_be_told_it_is() -> None:
    (rest,) = [rest for name, rest in instructions() if name == "ENV"]
    environ = dict(pair.split("=") for pair in rest.split())
    with pytest.raises(ConfigError, match="every address") as refused:
        Gateway(config.load(environ=environ, directory=ROOT / "deploy").settings)
    assert refused.value.hint is not None
    assert "gateway.host" in refused.value.hint
    named = config.load(environ={**environ, "FROSTLINE_GATEWAY_HOST": "here"}, directory=ROOT / "deploy").settings
    assert Gateway(named).host == "here"
    assert ("EXPOSE", environ["FROSTLINE_GATEWAY_PORT"]) in instructions()


def test_commands_of_the_docs_are_accepted() -> None:
    found = [(page.name, line) for page in PAGES for line in shown(page.read_text(encoding="utf-8"))]
    assert len(found) > 40
    for page, line in found:
        try:
            accept(arguments(line))
        except Exception as error:
            pytest.fail(f"{page}, {line}: {error}")


def test_what_is_not_accepted() -> None:
    for words in (["gatway"], ["run", "--onec"], ["untier", "public.events"], ["--dns", "x", "status"]):
        with pytest.raises(Exception, match=r"No such|Missing parameter"):
            accept(words)
    assert CliRunner().invoke(app, ["run", "--onec"]).exit_code == 2
