"""A home directory in which the commands of a page run as somebody types them."""

import json
import os
import random
import re
import socket
import subprocess
import tarfile

from stack import BIN, HANG_S, MODEL

# A model that was named just now may be POOL_UNREADY for a moment, which says that the same request is to be sent again.
CURL = """#!/bin/sh
exec %s --retry 60 --retry-delay 1 --write-out "%%{stderr}\\nanswered with %%{http_code}\\n" "$@"
"""


def own_address():
    """A loopback address that nobody else listens at, so that a port which is free there stays free until it is used."""
    return "127." + ".".join(str(random.SystemRandom().randint(1, 254)) for _ in range(3))


def free_port(address):
    with socket.create_server((address, 0)) as server:
        return server.getsockname()[1]


def program(directory, name, text):
    path = directory / name
    path.write_text(text)
    path.chmod(0o755)


def write_programs(directory):
    """Programs that stand before the system's."""
    curl = subprocess.run(["which", "curl"], capture_output=True, check=True, timeout=HANG_S).stdout.decode().strip()
    program(directory, "curl", CURL % curl)
    return directory


def write_tarball(directory):
    """What `make package` packs, as far as the pages use it: the programs as links to those that are built."""
    version = json.loads(subprocess.run([str(BIN / "llorch"), "--json", "version"], capture_output=True, check=True,
                                        timeout=HANG_S).stdout)["version"].split("+")[0]
    top = directory / f"llama-orch-{version}-x86_64"
    (top / "bin").mkdir(parents=True)
    (top / "models").mkdir()
    for name in ("llorch", "orchestratord", "pool-managerd", "worker-orcd", "worker-adapterd"):
        (top / "bin" / name).symlink_to(BIN / name)
    (top / "models" / MODEL.name).write_bytes(MODEL.read_bytes())
    path = directory / f"{top.name}.tar.xz"
    with tarfile.open(path, "w:xz", preset=0) as archive:
        archive.add(top, top.name)
    return path


class Machine:
    """`stands_for`: what is written on the page -> what it is here."""

    def __init__(self, home, programs, stands_for):
        self.home = home
        self.home.mkdir(exist_ok=True)
        self.stands_for = stands_for
        self.used = set()  # of stands_for
        self.said = ""  # by all commands until now
        self.session = home.with_name(home.name + "-session")
        self.session.mkdir()
        self.env = {"HOME": str(home), "USER": os.environ.get("USER", "nobody"), "LANG": "C.UTF-8",
                    "PATH": f"{':'.join(map(str, programs))}:{BIN}:{os.environ['PATH']}"}

    def written(self, text):
        """As the text of a page is meant here. JOB, $JOB and JOB_ID are the last job that was told of, id: N-HASH an event of it."""
        for theirs, ours in self.stands_for.items():
            if theirs in text:
                self.used.add(theirs)
                text = text.replace(theirs, str(ours))
        for placeholder, told in ((r"\$?\bJOB(_ID)?\b", r'"job_id":\s*"([^"]+)"|^(\w{8}-\w{4}-\w{4}-\w{4}-\w{12})\b'),
                                  (r"\b17-0123456789abcdef\b", r"^id: (17-\w+)$")):
            if re.search(placeholder, text):
                found = re.findall(told, self.said, re.MULTILINE)
                assert found, f"nothing was told of that stands for {placeholder} in:\n{text}"
                text = re.sub(placeholder, "".join(found[-1]), text)
        return text

    def run(self, commands):
        """Runs them one behind the other and returns what they wrote."""
        (self.session / "directory").write_text(str(self.home))
        (self.session / "variables").write_text("")
        said = ""
        for command in commands:
            said += self._run(self.written(command))
        return said

    def _run(self, command):
        kept = self.session
        script = (f'cd "$(cat {kept}/directory)"; source {kept}/variables; set -euo pipefail\n{command}\n'
                  f"status=$?; pwd > {kept}/directory; export -p > {kept}/variables; exit $status")
        with open(kept / "out", "wb") as out:  # not a pipe: a daemon that stays would hold it
            done = subprocess.run(["bash", "-c", script], cwd=self.home, env=self.env, timeout=HANG_S, check=False,
                                  stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT)
        said = (kept / "out").read_text(errors="replace")
        self.said += said
        assert done.returncode == 0, f"{done.returncode} from:\n{command}\n{said}"
        refused = [status for status in re.findall(r"^answered with (\d+)$", said, re.MULTILINE) if not 200 <= int(status) < 300]
        assert not refused, f"{refused} is the answer to:\n{command}\n{said}"
        return said

    def left_running(self):
        return list((self.home / ".local/state/llorch/run").glob("*.json"))
