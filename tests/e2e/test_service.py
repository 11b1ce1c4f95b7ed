"""llorch service install, with a script in the place of systemctl: what the unit has of the caller's shell."""

import os
import stat
import subprocess

import pytest

from stack import BIN, HANG_S, clean_env

TOKEN = "t" * 40


@pytest.fixture
def install(tmp_path):
    """Runs it with these variables; the unit's lines, or what it says where it writes none."""
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "systemctl").write_text("#!/bin/sh\n")
    (programs / "systemctl").chmod(0o755)
    unit = tmp_path / "home/.config/systemd/user/llorch.service"

    def run(*flags, **variables):
        unit.unlink(missing_ok=True)
        env = clean_env(tmp_path / "state", variables)
        env = {name: value for name, value in env.items() if not name.startswith("XDG_")}
        env |= {"HOME": str(tmp_path / "home"), "PATH": f"{programs}:{os.environ['PATH']}"}
        done = subprocess.run([BIN / "llorch", *flags, "service", "install", "--cpu"], env=env, cwd=tmp_path, capture_output=True, text=True,
                              timeout=HANG_S, check=False)
        assert unit.exists() == (done.returncode == 0), done.stderr
        return done, unit.read_text(encoding="utf-8").splitlines() if unit.exists() else []

    run.unit = unit
    return run


# A service that had lost its token would serve everybody on this machine.
def test_a_service_has_the_token_of_the_shell(install, tmp_path):
    token = tmp_path / "token"
    token.write_text(TOKEN)
    token.chmod(0o600)
    done, lines = install(LLORCH_API_TOKEN_FILE="token", LLORCH_API_TOKEN="u" * 40)
    assert f'Environment="LLORCH_API_TOKEN_FILE={token}"' in lines, done.stderr
    assert not any("u" * 40 in line for line in lines)


def test_a_token_that_no_file_holds_is_refused(install):
    done, _ = install(LLORCH_API_TOKEN=TOKEN)
    assert done.returncode == 2 and "LLORCH_API_TOKEN_FILE" in done.stderr and TOKEN not in done.stderr
    done, _ = install(LLORCH_API_TOKEN="")
    assert done.returncode == 0, done.stderr


def test_a_service_has_the_settings_of_the_shell(install, tmp_path):
    proxy = "http://me:50%@proxy:3128"
    done, lines = install("--set", "orchestratord.queue.capacity=9", LLORCH_ORCHESTRATORD_QUEUE_CAPACITY="7", LLORCH_MODELS_PULL_PROXY=proxy,
                          LLORCH_OF_ANOTHER_PROGRAM="x")
    assert 'Environment="LLORCH_ORCHESTRATORD_QUEUE_CAPACITY=7"' in lines, done.stderr
    assert f'Environment="LLORCH_MODELS_PULL_PROXY={proxy.replace("%", "%%")}"' in lines
    assert not any("OF_ANOTHER_PROGRAM" in line for line in lines)
    assert any(line.startswith("ExecStart=") and '"--set" "orchestratord.queue.capacity=9"' in line for line in lines)
    assert f"WorkingDirectory=-{tmp_path}" in lines, "where a relative path of a setting is one"
    assert stat.S_IMODE(install.unit.stat().st_mode) == 0o600, "a setting may hold a password"
    done, _ = install(LLORCH_MODELS_PULL_PROXY="a\nExecStartPre=/bin/false")
    assert done.returncode == 2 and "line feed" in done.stderr


@pytest.mark.skipif(os.path.exists(f"/run/user/{os.getuid()}/systemd"), reason="a systemd of this user runs here")
def test_where_no_systemd_answers_nothing_is_left(install, tmp_path):
    (tmp_path / "programs/systemctl").write_text("#!/bin/sh\nexit 1\n")
    done, _ = install()
    assert done.returncode == 1 and "systemctl" in done.stderr, done.stderr
    wanted = install.unit.parent / "default.target.wants/llorch.service"
    wanted.parent.mkdir(parents=True)
    install.unit.write_text("[Unit]\n")  # of an earlier llorch
    wanted.symlink_to(install.unit)
    env = {**clean_env(tmp_path / "state"), "HOME": str(tmp_path / "home"), "PATH": f"{tmp_path}/programs:{os.environ['PATH']}"}
    env.pop("XDG_CONFIG_HOME", None)
    done = subprocess.run([BIN / "llorch", "service", "remove"], env=env, capture_output=True, text=True, timeout=HANG_S, check=False)
    assert done.returncode == 0 and not install.unit.exists() and not wanted.is_symlink(), done.stderr
