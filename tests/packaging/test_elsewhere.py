"""The tarball on other distributions, the image without any, and both of them made twice."""

import hashlib
import io
import json
import os
import shutil
import stat
import subprocess
import tarfile

import pytest

from roots import Root, base, run
from stack import BIN, MODEL

PROMPT = ("run", "fairytale-5m-q8_0", "Once upon a time", "--seed", "7", "--max-tokens", "60")
FREE_PORTS = "--set orchestratord.bind=127.0.0.1:0 --set pool-managerd.bind=127.0.0.1:0"


@pytest.fixture(scope="module")
def expected(packages, tmp_path_factory):
    """What PROMPT prints on this machine, from the build tree."""
    env = {**os.environ, "LLORCH_STATE_DIR": str(tmp_path_factory.mktemp("here")), "LLORCH_CONFIG": os.devnull}
    run(BIN / "llorch", *FREE_PORTS.split(), "up", "--cpu", "--detach", "--model", MODEL, env=env)
    try:
        return run(BIN / "llorch", *PROMPT, env=env)
    finally:
        run(BIN / "llorch", "down", env=env)


# glibc 2.31, 2.31 of another distribution, 2.41.
@pytest.mark.parametrize("suite", ["bullseye", "focal", "trixie"])
def test_the_tarball_runs_where_it_is_unpacked(the, suite, tmp_path, expected):
    kept = base(suite)
    if kept is None:
        pytest.skip(f"the mirror of {suite} does not answer")
    with Root(kept, tmp_path / "root") as root:
        run("tar", "-C", root.path / "srv", "-xf", the("*-x86_64.tar.xz"))
        root.run("useradd", "--create-home", "user")
        script = f"""cd /srv/llama-orch-*/ && bin/llorch {FREE_PORTS} up --cpu --detach --model models/fairytale-5m-q8_0.gguf >&2
trap 'bin/llorch down >&2' EXIT
bin/llorch run fairytale-5m-q8_0 "Once upon a time" --seed 7 --max-tokens 60"""
        assert root.run_as("user", script) == expected
        versions = {root.run_as("user", f"/srv/llama-orch-*/lib/llorch/{program} --version").split("(")[1]
                    for program in ("llorch", "orchestratord", "pool-managerd", "worker-orcd", "worker-adapterd")}
        assert len(versions) == 1 and versions.pop().startswith("release ")


def test_every_library_comes_with_its_licence(the):
    with tarfile.open(the("*-x86_64.tar.xz")) as archive:
        names = [name.split("/", 1)[1] for name in archive.getnames() if "/" in name]
        top = archive.getnames()[0]
        listed = archive.extractfile(f"{top}/LICENSES/VERSIONS").read().decode().split("\n")[:-1]
    libraries = {name.rpartition("/")[2] for name in names if name.startswith("lib/llorch/libraries/")}
    assert "libstdc++.so.6" in libraries and "libc.so.6" in libraries
    assert {line.split()[2] for line in listed} == libraries
    assert all(f"LICENSES/{line.split()[0]}" in names and line.split()[1] for line in listed)


def test_the_image_serves_without_a_distribution(the, tmp_path, expected):
    root = tmp_path / "root"
    with tarfile.open(the("*-oci.tar")) as image:
        def blob(descriptor):
            data = image.extractfile("blobs/" + descriptor["digest"].replace(":", "/")).read()
            assert descriptor["digest"] == "sha256:" + hashlib.sha256(data).hexdigest() and descriptor["size"] == len(data)
            return data
        manifest = json.loads(blob(json.load(image.extractfile("index.json"))["manifests"][0]))
        config = json.loads(blob(manifest["config"]))
        with tarfile.open(fileobj=io.BytesIO(blob(manifest["layers"][0]))) as layer:
            layer.extractall(root, numeric_owner=True)
    user = config["config"]["User"]
    # What an engine gives every container.
    (root / "proc").mkdir()
    (root / "dev").mkdir()
    os.mknod(root / "dev/null", stat.S_IFCHR, os.makedev(1, 3))
    (root / "dev/null").chmod(0o666)
    run("mount", "-t", "proc", "proc", root / "proc")
    try:
        env = dict(entry.split("=", 1) for entry in config["config"]["Env"])
        program = [shutil.which("chroot"), f"--userspec={user}", root, *config["config"]["Entrypoint"]]
        run(*program, *FREE_PORTS.split(), *config["config"]["Cmd"], "--cpu", "--detach", "--model",
            "/usr/share/llorch/models/fairytale-5m-q8_0.gguf", env=env)
        try:
            assert run(*program, *PROMPT, env=env) == expected
        finally:
            run(*program, "down", env=env)
    finally:
        run("umount", root / "proc")


@pytest.mark.usefixtures("packages")  # skips with the others
def test_files_of_the_package_have_the_time_of_the_commit(repository, tmp_path):
    """Also those that are older, which dpkg-deb by itself leaves: two checkouts differ in nothing else."""
    later = 2**31
    subprocess.run(["packaging/build", "--out", tmp_path, "deb"], cwd=repository, env={**os.environ, "SOURCE_DATE_EPOCH": str(later)}, check=True,
                   capture_output=True)
    (package,) = tmp_path.glob("*.deb")
    data = subprocess.run(["dpkg-deb", "--fsys-tarfile", package], check=True, capture_output=True).stdout
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        assert {entry.mtime for entry in archive} == {later}


def test_two_makings_give_the_same_bytes(packages, repository, tmp_path):
    made = sorted(path for path in packages.iterdir() if path.suffix in (".deb", ".xz", ".tar"))
    assert len(made) == 3
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    other = {**os.environ, "TZ": "Asia/Kathmandu", "LC_ALL": "C.UTF-8", "TMPDIR": str(temporary)}
    subprocess.run(["sh", "-c", 'umask 077 && exec packaging/build --out "$1"', "sh", tmp_path / "again"], cwd=repository, env=other,
                   check=True, capture_output=True)
    for package in made:
        assert (tmp_path / "again" / package.name).read_bytes() == package.read_bytes(), package.name
