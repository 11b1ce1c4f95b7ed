"""A PostgreSQL server of one's own: in a temporary directory, on a unix socket. Debian's server programs."""

import os
import pathlib
import pwd
import shutil
import signal
import subprocess
import tempfile

import pytest

from stack import HANG_S, wait_for


def server_programs():
    """Their directory; skips the test if there is none."""
    directories = sorted(pathlib.Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    if not directories:
        pytest.skip("no PostgreSQL server is installed (tools/install_deps installs it)")
    return directories[-1].parent


def unprivileged_user():
    """Whom to run the server as: it refuses to run as root."""
    if os.geteuid() != 0:
        return {}
    for name in ("postgres", "nobody"):
        try:
            user = pwd.getpwnam(name)
        except KeyError:
            continue
        return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
    pytest.skip("root may not run a PostgreSQL server, and there is neither a user postgres nor nobody")


class PostgresServer:
    def __init__(self):
        self.programs = server_programs()
        self.user = unprivileged_user()
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="llorch-pg-"))
        if self.user:
            os.chown(self.dir, self.user["user"], self.user["group"])
        self.process = None
        self.log = open(self.dir / "log", "ab")
        initdb = ["-D", str(self.dir / "data"), "-U", "llorch", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"]
        subprocess.run([str(self.programs / "initdb"), *initdb], check=True, cwd=self.dir, stdout=self.log, stderr=self.log,
                       **self.user)

    def __enter__(self):
        self.start()
        self.sql("CREATE DATABASE jobs", database="postgres")
        return self

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGQUIT)
        self.process.wait(HANG_S)
        self.log.close()
        shutil.rmtree(self.dir, ignore_errors=True)

    def start(self):
        command = [str(self.programs / "postgres"), "-D", str(self.dir / "data"), "-k", str(self.dir),
                   "-c", "listen_addresses=", "-c", "shared_buffers=16MB"]
        self.process = subprocess.Popen(command, cwd=self.dir, stdout=self.log, stderr=self.log, **self.user)
        wait_for("the PostgreSQL server", lambda: self.run_psql("SELECT 1", "postgres").returncode == 0)

    def run_psql(self, sql, database):
        return subprocess.run([str(self.programs / "psql"), "-h", str(self.dir), "-U", "llorch", "-d", database, "-Atc", sql],
                              capture_output=True, text=True)

    def sql(self, sql, database="jobs"):
        outcome = self.run_psql(sql, database)
        assert outcome.returncode == 0, outcome.stderr
        return outcome.stdout.strip()

    def connection_file(self, directory):
        path = pathlib.Path(directory) / "connection"
        path.write_text(f"host={self.dir} user=llorch dbname=jobs\n")
        path.chmod(0o600)
        return path
