"""What is generated from the programs' own declarations, in the programs that read it."""

import gzip
import json
import os
import re
import shutil
import subprocess

import pytest

from stack import BIN, HANG_S, clean_env


def output(*command, **more):
    return subprocess.run(command, check=True, capture_output=True, text=True, **more).stdout


def commands(declared, path=()):
    yield path
    for child in declared["commands"]:
        yield from commands(child, (*path, child["name"]))


def test_every_command_of_help_has_a_page(installed):
    declared = json.loads(output(BIN / "llorch", "declaration"))
    paths = list(commands(declared))
    assert ("pool", "drain") in paths
    for path in paths:
        page = gzip.decompress((installed / "man/man1" / ("-".join(("llorch", *path)) + ".1.gz")).read_bytes()).decode()
        spoken = output(BIN / "llorch", *path, "--help")
        for option in re.findall(r"^  .*?(--[a-z][a-z-]*)", spoken, re.MULTILINE):
            assert option.replace("-", "\\-") in page, (path, option)
        listed = re.search(r"\nSubcommands:\n((?:  .*\n)+)", spoken)
        names = re.findall(r"^  ([^\s,]+)", listed[1], re.MULTILINE) if listed else []  # "up, serve": a name and its aliases
        assert [child for child in names if (*path, child) not in paths] == []


@pytest.mark.parametrize("daemon", ["orchestratord", "pool-managerd", "worker-orcd", "worker-adapterd"])
def test_every_option_of_a_daemon_is_in_its_page(installed, daemon):
    page = gzip.decompress((installed / f"man/man8/{daemon}.8.gz").read_bytes()).decode().replace("\\-", "-")
    options = re.findall(r"^  .*?(--[a-z][a-z-]*)", output(BIN / daemon, "--help"), re.MULTILINE)
    assert len(options) > 5
    assert [option for option in options if option not in page] == []


def test_pages_render_without_a_warning(installed):
    if not shutil.which("groff"):
        pytest.skip("groff is not installed (Debian: groff-base)")
    for page in sorted(installed.glob("man/man*/*.gz")):
        done = subprocess.run(["groff", "-man", "-Tutf8", "-ww", "-z"], input=gzip.decompress(page.read_bytes()), capture_output=True,
                              check=True)
        assert done.stderr == b"", page.name


def bash_offers(installed, *words):
    script = f"""source {installed}/bash-completion/completions/llorch
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _llorch 2>/dev/null; printf '%s\\n' "${{COMPREPLY[@]}}" """
    return output("bash", "--norc", "-c", script, "bash", *words, cwd=installed).split()


def fish_offers(installed, line):
    offered = output("fish", "--no-config", "-c", f"source {installed}/fish/vendor_completions.d/llorch.fish; complete -C '{line}'")
    return [word.split("\t")[0] for word in offered.splitlines()]


def test_bash_completes(installed):
    assert bash_offers(installed, "llorch", "po") == ["pool"]
    assert bash_offers(installed, "llorch", "--json", "pool", "dr") == ["drain"]
    assert bash_offers(installed, "llorch", "run", "--priority", "") == ["interactive", "batch"]
    assert bash_offers(installed, "llorch", "run", "--max-t") == ["--max-tokens"]
    assert "--json" in bash_offers(installed, "llorch", "ps", "--")
    (installed / "a.gguf").touch()
    assert "a.gguf" in bash_offers(installed, "llorch", "up", "--model", "a.g")
    assert "a.gguf" in bash_offers(installed, "llorch", "backup", "a.g")


def test_fish_completes(installed):
    if not shutil.which("fish"):
        pytest.skip("fish is not installed")
    assert fish_offers(installed, "llorch po") == ["pool"]
    assert "drain" in fish_offers(installed, "llorch pool ")
    assert sorted(fish_offers(installed, "llorch run --priority ")) == ["batch", "interactive"]


def test_zsh_completes(installed):
    if not shutil.which("zsh"):
        pytest.skip("zsh is not installed")
    script = """
words=(llorch pool dr); CURRENT=3
_describe() { [[ $1 == -o ]] && shift; print -l -- ${(P)2} }
source %s/zsh/vendor-completions/_llorch
""" % installed
    assert "drain:No more jobs; workers are stopped when they are idle" in output("zsh", "-f", "-c", script).splitlines()


def test_units_verify(repository, tmp_path):
    if not shutil.which("systemd-analyze"):
        pytest.skip("systemd-analyze is not installed (Debian: systemd)")
    for unit in (repository / "packaging/systemd").glob("*.service"):
        # The programs of this build in place of those that the package installs; its pages are tested above.
        text = unit.read_text(encoding="utf-8").replace("/usr/lib/llorch", str(BIN)).replace("/usr/bin/llorch", str(BIN / "llorch"))
        (tmp_path / unit.name).write_text(re.sub(r"(?m)^Documentation=.*\n", "", text), encoding="utf-8")
    units = sorted(tmp_path.iterdir())
    assert len(units) == 2
    done = subprocess.run(["systemd-analyze", "verify", *units], capture_output=True, text=True, check=False)
    complaints = [line for line in done.stderr.splitlines() if any(unit.name in line for unit in units)]
    assert complaints == []


def settings_of(unit, key):
    return re.findall(rf"(?m)^{key}=(.*)$", unit.read_text(encoding="utf-8"))


# DHCP and VPNs bring an address after the boot.
@pytest.mark.parametrize("daemon", ["orchestratord", "pool-managerd"])
def test_an_address_that_is_not_there_yet_does_not_end_the_service(repository, tmp_path, daemon):
    unit = repository / f"packaging/systemd/{daemon}.service"
    (tmp_path / "token").write_text("a" * 64, encoding="utf-8")
    (tmp_path / "token").chmod(0o600)
    # A pool listens beyond its machine only as one that is paired.
    for program, flags in (("orchestratord", ["--pair-pool", "pool-1", "--credential-file", tmp_path / "credential"]),
                           (daemon, ["--bind", "192.0.2.1:0"])):
        done = subprocess.run([BIN / program, "--state-dir", tmp_path / "state", *flags, "--set", f"auth.token_file={tmp_path}/token", "--set",
                               f"pool-managerd.credential_file={tmp_path}/credential", "--set", "devices.allow_cpu=true"],
                              env=clean_env(tmp_path / "state"), capture_output=True, text=True, timeout=HANG_S, check=False)
    assert "192.0.2.1" in done.stderr and "no interface" in done.stderr, done.stderr
    assert str(done.returncode) not in settings_of(unit, "RestartPreventExitStatus")[0].split()


def test_prompts_of_another_orchestratord_end_the_service(repository):
    # 5: see run_orchestratord; tests/e2e/test_postgresql.py has it.
    assert "5" in settings_of(repository / "packaging/systemd/orchestratord.service", "RestartPreventExitStatus")[0].split()


def test_a_worker_that_is_killed_for_memory_takes_no_pool_with_it(repository):
    assert settings_of(repository / "packaging/systemd/pool-managerd.service", "OOMPolicy") == ["continue"]


class Scripts:
    """The package's scripts, with directories of a test in place of the system's, and programs that do nothing."""

    def __init__(self, repository, root):
        self.root, self.source = root, repository / "packaging/debian"
        self.state, self.etc, self.programs = root / "state", root / "etc", root / "programs"
        for directory in (self.state, self.etc, self.programs):
            directory.mkdir()
        for name in ("adduser", "chown", "deb-systemd-helper", "deb-systemd-invoke", "deluser", "getent", "install", "runuser", "systemctl"):
            self.program(name, "exit 0")

    def program(self, name, text):
        (self.programs / name).write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
        (self.programs / name).chmod(0o755)

    def run(self, name, *arguments, wrapper=()):
        text = (self.source / name).read_text(encoding="utf-8")
        for place, instead in (("/var/lib/llorch", self.state), ("/etc/llorch", self.etc)):
            text = text.replace(place, str(instead))
        (self.root / name).write_text(text, encoding="utf-8")
        return subprocess.run([*wrapper, "sh", self.root / name, *arguments], capture_output=True, text=True, timeout=HANG_S, check=False,
                              env={"PATH": f"{self.programs}:{os.environ['PATH']}"})


# What apt does next hangs on the exit of this script.
def test_an_upgrade_pairs_nothing_and_a_pool_that_cannot_be_paired_is_a_warning(repository, tmp_path):
    scripts = Scripts(repository, tmp_path)
    scripts.program("runuser", f"echo asked >>{tmp_path}/asked; echo 'ALREADY_RUNNING' >&2; exit 1")
    done = scripts.run("postinst", "configure", "0.1.0")
    assert done.returncode == 0 and not (tmp_path / "asked").exists(), done.stderr
    done = scripts.run("postinst", "configure", "")
    assert done.returncode == 0 and (tmp_path / "asked").read_text() == "asked\n", done.stderr
    assert "warning" in done.stderr and "orchestratord --pair-pool pool-1" in done.stderr
    # Else the pairing is written into the state of whoever runs it, and the pool of the service is refused.
    assert f"env LLORCH_CONFIG={scripts.etc}/config.yaml LLORCH_STATE_DIR={scripts.state} /usr/lib/llorch/orchestratord" in done.stderr


def test_purge_empties_a_mount_point_and_leaves_it(repository, tmp_path):
    scripts = Scripts(repository, tmp_path)
    (scripts.etc / "token").write_text("x")
    mounted = ["unshare", "-m", "sh", "-ec", f'mount -t tmpfs tmpfs {scripts.state}; touch {scripts.state}/.kept {scripts.state}/jobs; "$@"; '
               f"ls -A {scripts.state} >{tmp_path}/left", "sh"]
    if subprocess.run([*mounted, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("mounts a file system, which only root may")
    scripts.program("deluser", f"echo asked >>{tmp_path}/asked")
    done = scripts.run("postrm", "purge", wrapper=mounted)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "left").read_text() == "" and not scripts.etc.exists()
    assert (tmp_path / "asked").exists(), "what comes behind it"


def test_configuration_of_the_package_is_valid(repository, tmp_path):
    token = tmp_path / "token"
    token.write_text("a" * 64, encoding="utf-8")
    token.chmod(0o600)
    config = tmp_path / "config.yaml"
    text = (repository / "packaging/config.yaml").read_text(encoding="utf-8")
    config.write_text(text.replace("/etc/llorch/token", str(token)), encoding="utf-8")
    paired = tmp_path / "credential"
    output(BIN / "orchestratord", "--config", config, "--state-dir", tmp_path / "state", "--pair-pool", "pool-1", "--credential-file", paired)
    assert paired.stat().st_mode & 0o777 == 0o600


def test_launcher_finds_its_parts_from_a_link_elsewhere(repository, tmp_path):
    home = tmp_path / "with a space"
    (home / "programs").mkdir(parents=True)
    shutil.copy(repository / "packaging/tarball/launcher", home / "llorch")
    (home / "ld-linux-x86-64.so.2").write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n', encoding="utf-8")
    (home / "ld-linux-x86-64.so.2").chmod(0o755)
    link = tmp_path / "other-name"
    link.symlink_to(home / "llorch")
    said = output(link, "run", "two words", env={"PATH": "/usr/bin:/bin", "LD_LIBRARY_PATH": "/gpu"}).splitlines()
    assert said == ["--library-path", f"{home}/libraries:/gpu", f"{home}/programs/llorch", "run", "two words"]
