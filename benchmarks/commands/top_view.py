"""`shiplap top` on a cluster of 1,000 nodes and 20,000 pods, 20 of which change each second: what of a core it takes.

The view runs in a terminal of 50 lines and 200 columns and draws a picture each second. The API server is the one of
`shiplap lab dev`, in a process of its own.
"""

from __future__ import annotations

import fcntl
import multiprocessing
import os
import pty
import struct
import sys
import tempfile
import termios
import threading
import time
from multiprocessing.connection import Connection
from pathlib import Path

import msgspec

from benchmarks.commands.live_plan import NODES, PODS, node, pod
from shiplap_lab.cluster_simulator.http_server import KubeHttpServer
from shiplap_lab.fakes.cluster import ApiServer
from shiplap_lab.fakes.signals import FakeClock

CHANGES_S = 20
SECONDS = 20
_TICKS = os.sysconf("SC_CLK_TCK")


def serve(ready: Connection) -> None:
    api = ApiServer(FakeClock())
    for number in range(NODES):
        api.create("nodes", node(number))
    for number in range(PODS):
        api.create("pods", pod(number))
    ended = threading.Event()

    def change() -> None:
        number = 0
        while not ended.wait(1 / CHANGES_S):
            number = (number + 7919) % PODS
            name, namespace = f"pod-{number:05d}", f"team-{number % 40}"
            api.patch("pods", name, {"metadata": {"labels": {"round": str(number)}}}, namespace)

    with KubeHttpServer(api) as http:
        threading.Thread(target=change, daemon=True).start()
        ready.send(http.endpoint)
        ready.recv()
        ended.set()


def processor_s(process: int) -> float:
    """Return the processor time that a process has used so far, in seconds."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def main() -> None:
    here, there = multiprocessing.Pipe()
    server = multiprocessing.get_context("spawn").Process(target=serve, args=(there,))
    server.start()
    config = {
        "current-context": "bench",
        "contexts": [{"name": "bench", "context": {"cluster": "bench", "user": ""}}],
        "clusters": [{"name": "bench", "cluster": {"server": here.recv()}}],
    }
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "config")
        file.write_bytes(msgspec.json.encode(config))
        program = ["-c", "from shiplap_cli.main import main; main()", "top", "--kubeconfig", str(file)]
        process, terminal = pty.fork()
        if process == 0:
            os.environ["TERM"] = "xterm-256color"
            os.execv(sys.executable, [sys.executable, *program])  # noqa: S606 - itself
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 200, 0, 0))
        drawn = [0]

        def read() -> None:
            try:
                while got := os.read(terminal, 1 << 16):
                    drawn[0] += len(got)
            except OSError:  # the view has ended
                return

        threading.Thread(target=read, daemon=True).start()
        time.sleep(10)  # until it has listed and drawn once
        used, began, before = processor_s(process), time.monotonic(), drawn[0]
        time.sleep(SECONDS)
        spent, passed = processor_s(process) - used, time.monotonic() - began
        os.write(terminal, b"q")
        _, status = os.waitpid(process, 0)
        if status or drawn[0] == before:
            raise SystemExit(f"the view failed: {status}, {drawn[0] - before} bytes drawn")
        print(
            f"{NODES} nodes, {PODS} pods, {CHANGES_S} changes a second: {spent / passed:.1%} of one core, "
            f"{used:.1f} s to start, {(drawn[0] - before) / passed / 1000:.1f} kB drawn a second"
        )
    here.send("end")
    server.join()


if __name__ == "__main__":
    main()
