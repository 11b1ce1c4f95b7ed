"""The .deb on a clean Debian 12 with a real systemd."""

import contextlib
import os
import re
import shutil
import sqlite3
import subprocess

import pytest

from roots import SERVER, Machine, Root, base, run
from stack import BIN, MODEL, REPO, wait_for

UNITS = ("orchestratord.service", "pool-managerd.service")
RUN = ("run", "fairytale-5m-q8_0", "Once upon a time", "--seed", "7", "--max-tokens", "60")


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    """What RUN prints on this machine, from the build tree."""
    state = tmp_path_factory.mktemp("here")
    env = {**os.environ, "LLORCH_STATE_DIR": str(state), "LLORCH_CONFIG": os.devnull}
    run(BIN / "llorch", "--set", "orchestratord.bind=127.0.0.1:0", "--set", "pool-managerd.bind=127.0.0.1:0", "up", "--cpu", "--detach",
        "--model", MODEL, env=env)
    try:
        return run(BIN / "llorch", *RUN, env=env)
    finally:
        run(BIN / "llorch", "down", env=env)


@pytest.fixture
def root(packages, the, tmp_path):
    kept = base("bookworm", SERVER)
    if kept is None:
        pytest.skip("the mirror of Debian does not answer")
    root = Root(kept, tmp_path / "root")
    # The installation as such: nothing runs there that could start a daemon.
    with root:
        shutil.copy(the("*.deb"), root.path / "root/first.deb")
        root.before = files(root)
        root.said = root.run("apt-get", "install", "-y", "-q", "--no-install-recommends", "/root/first.deb")
    config = root.path / "etc/llorch/config.yaml"
    config.write_text(config.read_text(encoding="utf-8").replace("allow_cpu: false", "allow_cpu: true"), encoding="utf-8")
    yield root
    # Of a machine that failed half-way nothing stays mounted or running; tmp_path is pytest's to remove.


@pytest.fixture
def machine(root):
    machine = Machine(root)
    yield machine
    machine.close()


def files(root):
    """What packages could leave: everything but the notes of dpkg and apt themselves."""
    found = subprocess.run(["find", ".", "-xdev", "(", "-path", "./proc", "-o", "-path", "./var/lib/dpkg", "-o", "-path", "./var/cache", "-o",
                            "-path", "./var/log", "-o", "-path", "./var/lib/apt", "-o", "-path", "./tmp", "-o", "-path", "./run", ")", "-prune",
                            "-o", "-print"], cwd=root.path, capture_output=True, text=True, check=True)
    return set(found.stdout.splitlines())


def serves(machine):
    for unit in UNITS:
        wait_for(f"{unit} to run", lambda unit=unit: machine.run("systemctl", "show", "-P", "ActiveState", unit).strip() == "active")
    wait_for("a model that can be run", lambda: "fairytale-5m-q8_0" in ask(machine, "ls").stdout)


def ask(machine, *arguments):
    client = machine.popen_llorch(*arguments)
    out, err = client.communicate()
    return subprocess.CompletedProcess(arguments, client.returncode, out, err)


def run_when_ready(machine):
    """A pool that has just come reads the model first, and says so."""
    done = wait_for("an answer", lambda: (tried := ask(machine, *RUN)).returncode == 0 and tried or "POOL_" not in tried.stderr and tried)
    assert done.returncode == 0, done.stderr
    return done.stdout


def newer(package, out, work):
    """The same package under the next version, as an upgrade sees it."""
    run("dpkg-deb", "-R", package, work)
    control = work / "DEBIAN/control"
    control.write_text(re.sub(r"(?m)^Version: .*$", "Version: 99.0", control.read_text(encoding="utf-8")), encoding="utf-8")
    run("dpkg-deb", "--root-owner-group", "-Znone", "--build", work, out)


def test_the_installation_makes_secrets_and_prints_none(root):
    token = (root.path / "etc/llorch/token").read_text(encoding="utf-8")
    credential = (root.path / "var/lib/llorch/pool_credential").read_text(encoding="utf-8").strip()
    assert re.fullmatch(r"[0-9a-f]{64}", token)
    assert token not in root.said and credential.split(":")[1] not in root.said
    owner = root.run("id", "-u", "llorch").strip()
    for secret in ("etc/llorch/token", "var/lib/llorch/pool_credential"):
        status = (root.path / secret).stat()
        assert (status.st_mode & 0o777, str(status.st_uid)) == (0o600, owner)
    status = (root.path / "var/lib/llorch").stat()
    assert (status.st_mode & 0o777, str(status.st_uid)) == (0o700, owner)


def test_the_package_brings_dashboard_and_alerts(root):
    for name in ("alerts.yml", "dashboard.json"):
        installed = root.path / "usr/share/llorch/observability" / name
        assert installed.read_bytes() == (REPO / "packaging/observability" / name).read_bytes()


# SYS-11.4: the file under /etc is the configuration of both daemons.
def test_the_service_serves_with_hardened_units(machine, expected):
    serves(machine)
    assert run_when_ready(machine) == expected
    for unit in UNITS:
        exposure = re.search(r"exposure level for \S+: ([\d.]+)", machine.run("systemd-analyze", "security", "--no-pager", unit))
        assert float(exposure[1]) < 3
        assert machine.run("systemctl", "show", "-P", "User", unit).strip() == "llorch"
    # Nobody without the token, also on this machine; nobody from elsewhere at all.
    stranger = machine.run("setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", "env", "HOME=/nonexistent", "sh", "-c",
                           "llorch ps 2>&1; echo exit $?")
    assert "MISSING_TOKEN" in stranger and "exit 4" in stranger
    listening = re.findall(r"(?m)^ *\d+: (\w{8}):\w{4} 00000000:0000 0A", machine.run("cat", "/proc/net/tcp"))
    assert listening and set(listening) == {"0100007F"}
    # What crashes comes back.
    killed = machine.run("systemctl", "show", "-P", "MainPID", "orchestratord").strip()
    machine.run("systemctl", "kill", "--signal=KILL", "--kill-whom=main", "orchestratord")
    wait_for("another orchestratord", lambda: machine.run("systemctl", "show", "-P", "MainPID", "orchestratord").strip() not in (killed, "0"))
    serves(machine)
    assert run_when_ready(machine) == expected


def test_an_upgrade_under_load_loses_nothing(root, the, tmp_path, expected):
    # The workers' steps wait for a byte that comes after the upgrade, so that it meets running jobs.
    gate = root.path / "var/lib/llorch/gate"
    os.mkfifo(gate, 0o666)
    gate.chmod(0o666)
    drop_in = root.path / "etc/systemd/system/pool-managerd.service.d/gate.conf"
    drop_in.parent.mkdir(parents=True)
    drop_in.write_text("[Service]\nEnvironment=LLORCH_STEP_GATE=/var/lib/llorch/gate LLORCH_POOL_MANAGERD_WORKER_DRAIN_GRACE_MS=100\n",
                       encoding="utf-8")
    config = root.path / "etc/llorch/config.yaml"
    config.write_text(config.read_text(encoding="utf-8") + "# mine\n", encoding="utf-8")
    machine = Machine(root)
    try:
        serves(machine)
        assert run_when_ready(machine) == expected
        held = os.open(gate, os.O_RDWR | os.O_NONBLOCK)
        clients = [machine.popen_llorch(*RUN) for _ in range(5)]
        wait_for("the first to run and the others to wait", lambda: (said := ask(machine, "ps").stdout).count(" running ") == 1
                 and said.count(" completed ") == 1 and len(said.splitlines()) == 6)
        os.write(held, b"." * 3)
        newer(the("*.deb"), root.path / "root/second.deb", tmp_path / "second")
        machine.run("dpkg", "-i", "/root/second.deb")
        serves(machine)
        os.close(held)
        for client in clients:
            out, err = client.communicate()
            assert client.returncode == 0, err
            assert out == expected
        assert machine.llorch("ps").count(" completed ") == 6
        assert machine.run("dpkg-query", "-W", "-f", "${Version}", "llama-orch") == "99.0"
        assert config.read_text(encoding="utf-8").endswith("# mine\n")
    finally:
        machine.close()


def test_state_of_a_newer_program_is_refused_with_words(root):
    database = root.path / "var/lib/llorch/orchestrator.db"
    with contextlib.closing(sqlite3.connect(database)) as newer_state:
        newer_state.execute("INSERT INTO schema_migrations VALUES (99, '0099_newer', '', 0)")
        newer_state.commit()
        before = list(newer_state.iterdump())
    assert len(before) > 10
    machine = Machine(root)
    try:
        said = wait_for("its refusal", lambda: re.search(r"schema version 99.*", machine.run("journalctl", "-u", "orchestratord", "--no-pager")))
        assert "this program knows up to" in said[0] and "run the newer" in said[0]
    finally:
        machine.close()
    with contextlib.closing(sqlite3.connect(database)) as kept:
        assert list(kept.iterdump()) == before


def test_purge_leaves_nothing(machine, root):
    serves(machine)
    run_when_ready(machine)
    machine.run("dpkg", "--purge", "llama-orch")
    left = machine.run("sh", "-c", "cat /proc/[0-9]*/comm").split()
    assert "systemd" in left
    assert not {"orchestratord", "pool-managerd", "worker-orcd", "worker-adapterd"} & set(left)
    assert "llorch" not in (root.path / "etc/passwd").read_text(encoding="utf-8")
    assert "llorch" not in (root.path / "etc/group").read_text(encoding="utf-8")
    ours = re.compile(r"llorch|llama|orchestratord|pool-managerd")
    assert [name for name in files(root) - root.before if ours.search(name)] == []


def test_a_user_has_a_service_without_root(machine, expected):
    serves(machine)
    machine.run("useradd", "--uid", "4711", "--home-dir", "/home/u4711", "--create-home", "user")
    machine.run("loginctl", "enable-linger", "user")
    wait_for("the user's systemd", lambda: machine.run("systemctl", "show", "-P", "ActiveState", "user@4711.service").strip() == "active")
    machine.as_user(4711, "llorch --set orchestratord.bind=127.0.0.1:0 --set pool-managerd.bind=127.0.0.1:0 service install --cpu "
                    "--model /usr/share/llorch/models/fairytale-5m-q8_0.gguf")
    wait_for("its stack", lambda: "pool-managerd" in machine.as_user(4711, "ls ~/.local/state/llorch/run 2>&1 || true"))
    assert machine.as_user(4711, "llorch run fairytale-5m-q8_0 'Once upon a time' --seed 7 --max-tokens 60") == expected
    machine.as_user(4711, "llorch service remove")
    assert machine.as_user(4711, "ls -A ~/.config/systemd/user") == ""
    assert "no service is installed" in machine.as_user(4711, "llorch service remove 2>&1 || true")
