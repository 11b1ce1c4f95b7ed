"""A real podman for tests: a storage of its own, and an image that a registry of ours serves. The image holds no file: what runs in it
is of the host's /usr, as a volume. Skipped, visibly, where no container can run."""

import contextlib
import functools
import gzip
import hashlib
import io
import json
import pathlib
import shutil
import subprocess
import tarfile
import tempfile

import pytest

from model_server import ModelServer
from stack import HANG_S

REPOSITORY = "tale"
# How podman is started: as it is, and for a machine whose cgroups or limits its usual runtime refuses.
WAYS = (([], []),
        (["--cgroup-manager", "cgroupfs"], []),
        (["--cgroup-manager", "cgroupfs", "--runtime", "runc"], ["--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1024:1024"]))


def digest(data):
    return "sha256:" + hashlib.sha256(data).hexdigest()


def layer():
    """Bytes of a .tar.gz: directories to mount at, and links into /usr."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name in ("etc", "tmp", "proc", "sys", "dev", "run", "usr"):
            member = tarfile.TarInfo(name)
            member.type, member.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(member)
        for name in ("bin", "lib", "lib64"):
            member = tarfile.TarInfo(name)
            member.type, member.linkname = tarfile.SYMTYPE, f"usr/{name}"
            tar.addfile(member)
    return out.getvalue()


class Registry(ModelServer):
    """Serves the image `name`@`digest`."""

    def __init__(self):
        super().__init__()
        tar = layer()
        packed = gzip.compress(tar, mtime=0)
        config = json.dumps({"architecture": "amd64", "os": "linux", "config": {},
                             "rootfs": {"type": "layers", "diff_ids": [digest(tar)]}}).encode()
        kind = "application/vnd.oci.image"
        manifest = json.dumps({
            "schemaVersion": 2, "mediaType": f"{kind}.manifest.v1+json",
            "config": {"mediaType": f"{kind}.config.v1+json", "digest": digest(config), "size": len(config)},
            "layers": [{"mediaType": f"{kind}.layer.v1.tar+gzip", "digest": digest(packed), "size": len(packed)}]}).encode()
        self.documents["/v2/"] = (200, {}, b"{}")
        self.documents[f"/v2/{REPOSITORY}/manifests/{digest(manifest)}"] = (
            200, {"Content-Type": f"{kind}.manifest.v1+json", "Docker-Content-Digest": digest(manifest)}, manifest)
        for blob in (config, packed):
            self.documents[f"/v2/{REPOSITORY}/blobs/{digest(blob)}"] = (200, {"Content-Type": "application/octet-stream"}, blob)
        self.name = f"{self.host}/{REPOSITORY}"
        self.digest = digest(manifest)


class Podman:
    """`path` is a directory with the program `podman`. Every call of it is a line of `log`."""

    def __init__(self, directory, registry, way):
        self.path = pathlib.Path(directory) / "tools"
        self.path.mkdir()
        self.log = self.path / "log"
        (self.path / "registries.conf").write_text(f'[[registry]]\nlocation = "{registry.host}"\ninsecure = true\n')
        (self.path / "policy.json").write_text('{"default": [{"type": "insecureAcceptAnything"}]}')
        options = ["--root", f"{directory}/storage", "--runroot", f"{directory}/run", "--tmpdir", f"{directory}/tmp", "--storage-driver", "vfs",
                   "--events-backend", "file", *way[0]]
        self.program = self.path / "podman"
        self.program.write_text(f"""#!/bin/bash
echo "$*" >> {self.log}
export CONTAINERS_REGISTRIES_CONF={self.path}/registries.conf
command=$1; shift
[ "$command" = run ] && set -- {" ".join(way[1])} "$@"
[ "$command" = pull ] && set -- --signature-policy {self.path}/policy.json "$@"
exec {shutil.which("podman")} {" ".join(options)} "$command" "$@"
""")
        self.program.chmod(0o755)

    def run(self, *args):
        return subprocess.run([self.program, *args], capture_output=True, timeout=HANG_S)

    def containers(self):
        """Names of all there are, running or not."""
        return self.run("ps", "--all", "--format", "{{.Names}}").stdout.decode().split()

    def processes(self):
        """Ids of the processes that run in containers of this storage, or look after one."""
        out = set()
        for entry in pathlib.Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                command = (entry / "cmdline").read_bytes().split(b"\0")
                # The runtime's process beside a container, and its children, which are the container.
                if command[0].endswith(b"/conmon") and str(self.path.parent).encode() in b" ".join(command):
                    out.add(int(entry.name))
                    out.update(int(pid) for pid in (entry / f"task/{entry.name}/children").read_text().split())
            except OSError:
                continue
        return out

    def close(self):
        self.run("rm", "--force", "--all", "--time", "0")
        subprocess.run(["umount", "--lazy", *map(str, self.path.parent.glob("storage/*/*"))], capture_output=True)


@functools.cache
def way_here():
    """How a container runs on this machine, and why none does."""
    if shutil.which("podman") is None:
        return None, "no podman: apt install podman runc"
    why = []
    with Registry() as registry:
        for way in WAYS:
            with tempfile.TemporaryDirectory(prefix="llorch-e2e-podman-") as directory:
                podman = Podman(directory, registry, way)
                image = f"{registry.name}@{registry.digest}"
                pulled = podman.run("pull", image)
                ran = podman.run("run", "--rm", "--publish", "127.0.0.1::1", "--volume", "/usr:/usr:ro", image, "/usr/bin/true")
                podman.close()
                if ran.returncode == 0:
                    return way, ""
                why = (pulled.stderr + ran.stderr).decode().strip().splitlines()[-1:]
    return None, f"no container runs here: {why}"


@contextlib.contextmanager
def real_podman(directory):
    """A podman and the registry of its image."""
    way, why_not = way_here()
    if way is None:
        pytest.skip(why_not)
    with Registry() as registry:
        podman = Podman(directory, registry, way)
        try:
            yield podman, registry
        finally:
            podman.close()
