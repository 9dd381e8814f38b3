"""The systemd units: systemd accepts them, and they remove every privilege that the programs do not need."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from dispatcher.settings.load import load_settings

ROOT = Path(__file__).parents[2]
UNITS = {"daemon": "binlog-dispatcher.service", "mirror": "binlog-mirror.service"}


def directives(name: str) -> dict[str, list[str]]:
    """Returns the values of each directive of a unit, in order."""
    found: dict[str, list[str]] = {}
    text = (ROOT / "deploy" / UNITS[name]).read_text(encoding="utf-8")
    for key, value in re.findall(r"^(\w+)=(.*)$", text, re.MULTILINE):
        found.setdefault(key, []).append(value)
    return found


@pytest.mark.parametrize("name", UNITS)
def test_the_unit_gives_up_every_privilege_that_its_program_does_not_need(name: str) -> None:
    off = {
        "NoNewPrivileges", "LockPersonality", "PrivateDevices", "PrivateMounts", "PrivateTmp", "PrivateUsers",
        "ProtectClock", "ProtectControlGroups", "ProtectHome", "ProtectHostname", "ProtectKernelLogs",
        "ProtectKernelModules", "ProtectKernelTunables", "RemoveIPC", "RestrictNamespaces", "RestrictRealtime",
        "RestrictSUIDSGID",
    }  # fmt: skip
    if name == "daemon":
        off |= {"DynamicUser", "PrivateIPC"}
    found = directives(name)
    assert {key for key, values in found.items() if values == ["yes"]} == off
    assert found["CapabilityBoundingSet"] == [""] and found["UMask"][0].startswith("00")
    assert found["ProtectSystem"] == ["strict"]
    assert found["SystemCallFilter"][0] == "@system-service"
    assert found["LimitCORE"] == ["0"]  # a core file would hold passwords
    assert "MemoryDenyWriteExecute" not in found  # numba and the JVM compile code


def test_the_daemon_s_cache_and_state_are_for_its_user_alone() -> None:
    found = directives("daemon")
    assert found["StateDirectoryMode"] == found["CacheDirectoryMode"] == ["0700"]
    assert found["Environment"] == [f"NUMBA_CACHE_DIR=/var/cache/{found['CacheDirectory'][0]}"]


@pytest.mark.parametrize("name", UNITS)
def test_systemd_rates_the_unit_s_exposure_below_two(name: str) -> None:
    unit = str(ROOT / "deploy" / UNITS[name])
    command = ["systemd-analyze", "security", "--offline=true", "--no-pager", unit]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    (level,) = re.findall(r"Overall exposure level for .*?: ([0-9.]+)", done.stdout)
    assert float(level) < 2.0, done.stdout


@pytest.mark.parametrize("name", UNITS)
def test_systemd_accepts_the_unit(name: str, tmp_path: Path) -> None:
    """The test changes `ExecStart` to a program that exists on this machine, because systemd checks that the program
    exists."""
    text = (ROOT / "deploy" / UNITS[name]).read_text(encoding="utf-8")
    unit = tmp_path / UNITS[name]
    unit.write_text(re.sub(r"^ExecStart=\S+", "ExecStart=/bin/true", text, flags=re.MULTILINE))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(unit)],
        capture_output=True,
        text=True,
        check=False,
    )
    # systemd before 253 does not know `notify-reload`; the unit says so.
    said = [line for line in done.stderr.splitlines() if "notify-reload" not in line]
    assert (done.returncode, said) == (0, [])


def test_a_password_may_be_a_credential_of_the_unit(tmp_path: Path) -> None:
    (credential,) = directives("daemon")["LoadCredential"]
    name = credential.partition(":")[0]
    (tmp_path / name).write_text("from a credential\n", encoding="utf-8")
    file = tmp_path / "dispatcher.yaml"
    file.write_text(
        'consumers: {shop: {mysql: "repl@db1", databases: [shop],'
        f' password_file: "${{CREDENTIALS_DIRECTORY}}/{name}"}}}}',
        encoding="utf-8",
    )
    settings = load_settings([file], environment={"CREDENTIALS_DIRECTORY": str(tmp_path)})
    assert settings.consumers["shop"].secret == "from a credential"
