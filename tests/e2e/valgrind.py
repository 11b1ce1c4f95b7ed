"""Valgrind around orchestratord: what it counts says of a run what time does not."""

import shutil
import subprocess

import pytest

from stack import BIN, Stack

needed = pytest.mark.skipif(
    shutil.which("valgrind") is None or b"__asan_init" in (BIN / "orchestratord").read_bytes(),
    reason="nothing counts: no valgrind, or a build with sanitizers")


class Counted(Stack):
    """`counter` are valgrind's arguments; only orchestratord runs in it."""

    counter = ()

    def _spawn(self, name, bind, more=()):
        command = [str(BIN / name), "--state-dir", str(self.dir), "--bind", bind, *more, *self._args()]
        if name == "orchestratord":
            command = ["valgrind", *self.counter, *command]
        with self._output(name) as log:
            return subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=self.env, **self.spawn)
