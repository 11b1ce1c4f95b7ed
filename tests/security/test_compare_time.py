"""What a wrong token costs the daemon that refuses it, in instructions, which unlike time are the same on every run."""

import hashlib
import itertools
import re
import subprocess

import valgrind
from stack import HANG_S

pytestmark = valgrind.needed
TOKEN = "0123456789abcdef" * 16
MODULE = "llorch::net::http::"
CHECK = f"{MODULE}authorize("
REQUESTS = 5


class CountedCheck(valgrind.Counted):
    """Counts what orchestratord executes for the check of a caller; no pool is there to call as well."""

    @property
    def counter(self):
        return "--tool=callgrind", f"--callgrind-out-file={self.dir / 'counts'}", f"--toggle-collect={CHECK}*"

    def pair(self):
        pass

    def count(self):
        """Instructions of the check and of what it calls of its own module."""
        self.stop_daemons()
        listed = subprocess.run(["callgrind_annotate", "--threshold=100", str(self.dir / "counts")], capture_output=True, text=True,
                                timeout=HANG_S, check=True).stdout
        return sum(int(re.match(r"\s*([\d,]+)", line)[1].replace(",", "")) for line in listed.splitlines()
                   if MODULE in line and re.match(r"\s*[\d,]+ ", line))


def cost_of(token, status):
    stack = CountedCheck(token=TOKEN)
    try:
        stack.start_orchestrator()
        for _ in range(REQUESTS):
            answer = stack.request("GET", "/v2/pools", headers={"Authorization": f"Bearer {token}"})
            assert answer.status == status, answer.body
        return stack.count()
    finally:
        stack.stop()


def near_digest(bytes_alike):
    """A wrong token whose digest begins like the right one's and differs in the next byte."""
    right = hashlib.sha256(TOKEN.encode()).digest()
    for number in itertools.count():
        token = f"{number:0{len(TOKEN)}d}"
        digest = hashlib.sha256(token.encode()).digest()
        if digest[:bytes_alike] == right[:bytes_alike] and digest[bytes_alike] != right[bytes_alike]:
            return token


def test_how_near_a_wrong_token_is_costs_nothing():
    """AUTH-1007: a token that is wrong from its first character, one that is wrong in its last, and ones whose digests begin like the right
    one's are refused with the same number of instructions."""
    wrong = ["x" + TOKEN[1:], TOKEN[:-1] + "x", near_digest(0), near_digest(2)]
    costs = [cost_of(token, 401) for token in wrong]
    assert len(set(costs)) == 1 and costs[0] >= REQUESTS * hashlib.sha256().digest_size, costs
    assert cost_of(TOKEN, 200) != costs[0], "what differs is seen"
