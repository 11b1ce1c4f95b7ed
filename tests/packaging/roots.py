"""Roots of distributions, entered by chroot or booted with their own systemd. REQUIRES root."""

import contextlib
import pathlib
import subprocess
import tempfile

from stack import process_runs, wait_for

KEPT = pathlib.Path(__file__).resolve().parents[2] / "build/package-roots"
MIRRORS = {"focal": "http://archive.ubuntu.com/ubuntu"}
# What a server has: a systemd, also for users.
SERVER = "systemd-sysv,dbus,dbus-user-session,libpam-systemd"


def run(*command, **more):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False, **more)
    assert done.returncode == 0, f"{command}: exit {done.returncode}\n{done.stdout[-3000:]}{done.stderr[-3000:]}"
    return done.stdout


def base(suite, packages=""):
    """A root as debootstrap makes it, as a tar file that is kept between runs. None where its mirror does not answer."""
    kept = KEPT / f"{suite}{'-server' if packages else ''}.tar"
    if kept.exists():
        return kept
    KEPT.mkdir(parents=True, exist_ok=True)
    mirror = MIRRORS.get(suite, "http://deb.debian.org/debian")
    # Ubuntu's keys are not on Debian; the root is a place for tests.
    trust = ["--no-check-gpg"] if suite in MIRRORS else []
    include = [f"--include={packages}"] if packages else []
    with tempfile.TemporaryDirectory(prefix="llorch-root-") as work:
        fresh = pathlib.Path(work) / "root"
        done = subprocess.run(["debootstrap", "--variant=minbase", *trust, *include, suite, fresh, mirror], capture_output=True, text=True,
                              check=False)
        if done.returncode != 0:
            return None
        run("tar", "-C", fresh, "--one-file-system", "-cf", kept.with_suffix(".new"), ".")
        kept.with_suffix(".new").rename(kept)
    return kept


class Root:
    """A copy of a root; what a test writes there ends with it."""

    def __init__(self, kept, path):
        self.path = pathlib.Path(path)
        self.path.mkdir()
        run("tar", "-C", self.path, "--numeric-owner", "-xpf", kept)

    def __enter__(self):
        run("mount", "-t", "proc", "proc", self.path / "proc")
        return self

    def __exit__(self, *_):
        run("umount", self.path / "proc")

    def run(self, *command):
        return run("chroot", self.path, *command)

    def run_as(self, user, command):
        return run("chroot", self.path, "su", user, "-s", "/bin/sh", "-c", command)


class Machine:
    """A root booted by systemd-nspawn, with a network of its own."""

    def __init__(self, root):
        self.root = root
        self.log = open(root.path.parent / "console.log", "wb")
        # Without a systemd on this machine nobody could register it or give it a scope.
        self.nspawn = subprocess.Popen(["systemd-nspawn", "--quiet", "--register=no", "--keep-unit", "--private-network", "--boot",
                                        "--console=pipe", "--directory", root.path, "systemd.unit=multi-user.target"],
                                       stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log)
        self.leader = wait_for("the root's systemd", self._child)
        wait_for("the end of its start", lambda: self.state() in ("running", "degraded"))

    def _child(self):
        assert self.nspawn.poll() is None, "systemd-nspawn ended"
        with contextlib.suppress(OSError):
            for child in pathlib.Path(f"/proc/{self.nspawn.pid}/task/{self.nspawn.pid}/children").read_text().split():
                if pathlib.Path(f"/proc/{child}/comm").read_text().strip() == "systemd":
                    return child
        return None

    def command(self, *command):
        return ["nsenter", "-t", self.leader, "-a", *map(str, command)]

    def run(self, *command, **more):
        return run(*self.command(*command), **more)

    def state(self):
        done = subprocess.run(self.command("systemctl", "is-system-running"), capture_output=True, text=True, check=False)
        return done.stdout.strip()

    def llorch(self, *arguments):
        """As the operator, who may read the token."""
        return self.run("env", "LLORCH_CONFIG=/etc/llorch/config.yaml", "LLORCH_STATE_DIR=/var/lib/llorch", "llorch", *arguments)

    def popen_llorch(self, *arguments):
        command = self.command("env", "LLORCH_CONFIG=/etc/llorch/config.yaml", "LLORCH_STATE_DIR=/var/lib/llorch", "llorch", *arguments)
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def as_user(self, user_id, command):
        """A shell of a user whose systemd runs."""
        environment = [f"HOME=/home/u{user_id}", "PATH=/usr/bin:/bin", f"XDG_RUNTIME_DIR=/run/user/{user_id}"]
        return self.run("setpriv", "--reuid", user_id, "--regid", user_id, "--clear-groups", "env", "-i", *environment, "sh", "-ec", command)

    def close(self):
        with contextlib.suppress(AssertionError):
            self.run("systemctl", "poweroff")
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.nspawn.wait(60)
        if self.nspawn.poll() is None:
            self.nspawn.kill()
            self.nspawn.wait()
        wait_for("the end of the root's processes", lambda: not process_runs(self.leader))
        self.log.close()
