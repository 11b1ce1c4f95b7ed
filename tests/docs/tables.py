"""What stands for what on the pages, and what is not run."""

from stack import REPO

# page -> what is written there -> what it is here. `{models}`, `{secrets}`: directories; `{address}`: where orchestratord listens.
EVERYWHERE = {
    "localhost:8080": "{address}",
    "/srv/models": "{models}",
    "/etc/llorch": "{secrets}",
    "/etc/prometheus": "{secrets}",
    "/usr/share/llorch/observability": str(REPO / "packaging/observability"),
    "sha256:...": "sha256:" + 64 * "0",
}
STANDS_FOR = {
    "docs/guide/api.md": {'"max_tokens": 100, "messages"': '"max_tokens": 100, "seed": 7, "messages"'},  # long enough for an event 17
    "docs/guide/determinism.md": {"MODEL ": "{models}/fairytale-5m-q8_0.gguf ", "cuda:0,1": "cpu,cpu --quick --seeds 2",
                                  "# the whole matrix": "--seeds 2"},
    "docs/guide/model-tools.md": {"~/models/Qwen3-8B": "{models}/chat", "~/models/gpt-oss-20b": "{models}/gpt_oss",
                                  "--preset qwen3-30b-a3b --layers 8": "--preset qwen3-30b-a3b --layers 1 --width 256 --vocab 512 --experts 8"},
}

# (page, how the command begins, why it is not run)
NEEDS_ROOT = "needs root and Debian's package; tests/packaging installs it"
NEEDS_SYSTEMD = "needs the systemd of a user who is logged in"
OWN_TARGET = "is the whole build or test run itself"
NOT_RUN = [
    ("README.md", "make demo", OWN_TARGET),
    ("README.md", "make test", OWN_TARGET),
    ("README.md", "sudo apt install", NEEDS_ROOT),
    ("CONTRIBUTING.md", "make ", OWN_TARGET),
    ("CONTRIBUTING.md", "cmake ", "builds for minutes"),
    ("bench/peers/README.md", "python3 -m venv", "is a part of what follows"),
    ("bench/peers/README.md", "CMAKE_ARGS=", "needs a public network, and builds for an hour"),
    ("bench/peers/README.md", "bench/peers/run", "measures for an hour"),
    ("docs/guide/getting-started.md", "make ", OWN_TARGET),
    ("docs/guide/openai.md", "lm_eval", "needs a public network for its tasks and the tokenizer"),
    ("docs/guide/openai.md", "docker ", "needs a public network and Docker"),
    ("docs/guide/install.md", "cmake ", "builds for minutes"),
    ("docs/guide/install.md", "make package", OWN_TARGET),
    ("docs/guide/install.md", "sudo ", NEEDS_ROOT),
    ("docs/guide/install.md", "mkdir -p ~/.config/llorch && sudo", NEEDS_ROOT),
    ("docs/guide/install.md", "llorch service", NEEDS_SYSTEMD),
    ("docs/guide/install.md", "systemctl --user", NEEDS_SYSTEMD),
    ("docs/guide/install.md", "podman", "needs the image and a user's containers; tests/packaging looks into the image"),
    ("docs/guide/install.md", "docker", "needs the image and Docker"),
    ("docs/guide/persistence.md", "sudo ", NEEDS_ROOT),
    ("docs/guide/persistence.md", "createuser ", "needs a database of the system; tests/e2e/test_postgresql.py runs one of its own"),
]
