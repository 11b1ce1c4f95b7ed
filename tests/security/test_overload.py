"""What clients can make orchestratord hold: no more than its budget and a few KiB a connection."""

import pathlib
import socket
import urllib.parse

from stack import HANG_S, Stack

MIB = 1 << 20
BUDGET = 16 * MIB
SENDERS = 400
SENDER_BYTES = 3 << 10  # of a connection: itself, and the head it sent
REST_BYTES = 2 * MIB  # a MiB of free chunks, what one read takes, pages of the heap


def memory(process, field):
    lines = pathlib.Path(f"/proc/{process.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{field}:"))


def test_slow_senders_take_the_budget_and_no_more():
    stack = Stack(settings={"orchestratord.limits.request_bytes_in_flight_max": str(BUDGET)})
    try:
        stack.start_orchestrator()
        assert stack.request("POST", "/v2/tasks", {"model": "none"}).status >= 400  # what a first request takes is taken
        before = memory(stack.orchestrator, "VmHWM")
        address = urllib.parse.urlsplit(stack.url)
        head = (f"POST /v2/tasks HTTP/1.1\r\nHost: {address.hostname}\r\nContent-Type: application/json\r\n"
                f"Content-Length: {4 * MIB}\r\n\r\n").encode()
        senders = [socket.create_connection((address.hostname, address.port), timeout=HANG_S) for _ in range(SENDERS)]
        for sender in senders:
            sender.sendall(head)
            sender.setblocking(False)
        answers = set()
        while len(senders) > SENDERS // 4:  # three quarters of them gave way
            for sender in list(senders):
                try:
                    sender.send(b"x" * 5000)
                    answers.add(sender.recv(65536)[9:12])
                except BlockingIOError:
                    continue
                except OSError:  # it was answered, and is closed
                    pass
                senders.remove(sender)
                sender.close()
        grown = memory(stack.orchestrator, "VmHWM") - before
        assert b"503" in answers and answers <= {b"503", b"408", b""}, answers
        assert grown > BUDGET // 2, "nobody attacked"
        assert grown <= BUDGET + SENDERS * SENDER_BYTES + REST_BYTES, f"{grown / MIB:.1f} MiB"
        assert stack.request("POST", "/v2/tasks", {"model": "none"}).status in (400, 404)
    finally:
        stack.stop()
