"""Transports against plain `ssh` on a loopback sshd: latency, logins, bulk, and event streams.

Only ratios between rows of one run mean something; loopback has no round-trip time.

    python benchmarks/transport.py [--quick]
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from fleetctl.clock import SystemClock
from fleetctl.host.connect import connect
from fleetctl.host.endpoint import Backend
from fleetctl.host.handshakes import HandshakeGate
from fleetctl.host.shell import ShellTransport
from tests.host.processes import descendants
from tests.host.sshd import Sshd, Sshds, make_key

CLOCK = SystemClock()
MB = 1_000_000
STREAMS = 40
EVENTS_PER_S = 50

EVENT_SERVER = """
import asyncio, sys, time
async def serve(reader, writer):
    try:
        while True:
            writer.write(b"data: %.6f\\n\\n" % time.monotonic() + b"x" * 200 + b"\\n")
            await writer.drain()
            await asyncio.sleep(1 / float(sys.argv[1]))
    except ConnectionError:
        pass
async def main():
    server = await asyncio.start_server(serve, "127.0.0.1", 0, backlog=512)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()
asyncio.run(main())
"""


@dataclass(frozen=True)
class Bench:
    """What all measurements share."""

    sshd: Sshd
    gate: HandshakeGate
    folder: Path

    def open(self, backend: Backend) -> ShellTransport:
        """Log in once more."""
        return connect(self.sshd.endpoint(), backend=backend, gate=self.gate, clock=CLOCK)

    def ssh(self, *options: str) -> list[str]:
        """Return the words of a plain `ssh` to the same server."""
        known = ["-o", f"UserKnownHostsFile={self.sshd.known_hosts}", "-o", "BatchMode=yes"]
        key = ["-i", str(self.sshd.login_key), "-p", str(self.sshd.port)]
        return ["ssh", "-F", "none", *known, *key, *options, "127.0.0.1"]


def timed(action: Callable[[], object]) -> float:
    start_s = CLOCK.monotonic_s()
    action()
    return CLOCK.monotonic_s() - start_s


def interleaved(rows: dict[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """Return the median of each row, measured in turns so that a busy machine is fair to all."""
    times: dict[str, list[float]] = {name: [] for name in rows}
    for _ in range(repeats):
        for name, action in rows.items():
            times[name].append(timed(action))
    return {name: statistics.median(values) for name, values in times.items()}


def show(title: str, medians: dict[str, float], unit: str = "ms", scale: float = 1000.0) -> None:
    baseline = next(iter(medians.values()))
    print(f"\n{title}")
    for name, value in medians.items():
        print(f"  {name:<34} {value * scale:9.1f} {unit}   x{value / baseline:5.2f}")


def run_quietly(argv: list[str], stdin: bytes = b"") -> bytes:
    return subprocess.run(argv, input=stdin, capture_output=True, check=True).stdout


@contextlib.contextmanager
def plain_master(bench: Bench) -> Iterator[list[str]]:
    """Yield the options of a ControlMaster that belongs to nobody but the baseline."""
    path = str(bench.folder / "plain")
    subprocess.run(bench.ssh("-M", "-S", path, "-N", "-f"), check=True, capture_output=True)
    yield ["-S", path]
    subprocess.run(bench.ssh("-S", path, "-O", "exit"), check=True, capture_output=True)


def measure_connect(bench: Bench, repeats: int) -> None:
    def whole(backend: Backend) -> None:
        transport = bench.open(backend)
        transport.run(["true"], deadline_s=60)
        transport.close()

    rows: dict[str, Callable[[], object]] = {
        "ssh HOST true": lambda: run_quietly([*bench.ssh(), "true"]),
        "paramiko": lambda: whole(Backend.PARAMIKO),
        "openssh": lambda: whole(Backend.OPENSSH),
    }
    show("connect, run `true`, close", interleaved(rows, repeats))


def measure_warm(bench: Bench, repeats: int) -> None:
    paramiko, openssh = bench.open(Backend.PARAMIKO), bench.open(Backend.OPENSSH)
    local = connect(bench.sshd.endpoint(), backend=Backend.LOCAL, gate=bench.gate, clock=CLOCK)
    with plain_master(bench) as mux:
        rows: dict[str, Callable[[], object]] = {
            "ssh over a ControlMaster": lambda: run_quietly([*bench.ssh(*mux), "true"]),
            "paramiko": lambda: paramiko.run(["true"], deadline_s=60),
            "openssh": lambda: openssh.run(["true"], deadline_s=60),
            "local": lambda: local.run(["true"], deadline_s=60),
            "paramiko check_alive": lambda: paramiko.check_alive(deadline_s=60),
        }
        show("run `true` on an open connection", interleaved(rows, repeats))
    paramiko.close()
    openssh.close()


def measure_logins(bench: Bench, logins: int) -> None:
    def ours(backend: Backend) -> None:
        def one(_number: int) -> None:
            transport = bench.open(backend)
            transport.run(["true"], deadline_s=60)
            transport.close()

        with ThreadPoolExecutor(logins) as pool:
            list(pool.map(one, range(logins)))

    def plain() -> None:
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda _: run_quietly([*bench.ssh(), "true"]), range(logins)))

    rows: dict[str, Callable[[], object]] = {
        "ssh HOST true, 8 at once": plain,
        "paramiko, all at once": lambda: ours(Backend.PARAMIKO),
        "openssh, all at once": lambda: ours(Backend.OPENSSH),
    }
    show(f"{logins} logins, each runs `true`", interleaved(rows, 1), "s", 1.0)


def measure_bulk(bench: Bench, size_bytes: int) -> None:
    content = os.urandom(MB) * (size_bytes // MB)
    swallow, pour = "cat >/dev/null", f"head -c {size_bytes} /dev/zero"
    paramiko, openssh = bench.open(Backend.PARAMIKO), bench.open(Backend.OPENSSH)

    def up(transport: ShellTransport) -> None:
        transport.run(["sh", "-c", swallow], stdin=content, deadline_s=600)

    def down(transport: ShellTransport) -> None:
        transport.run(["sh", "-c", pour], deadline_s=600)

    with plain_master(bench) as mux:
        rows: dict[str, Callable[[], object]] = {
            "ssh over a ControlMaster": lambda: run_quietly([*bench.ssh(*mux), swallow], content),
            "paramiko": lambda: up(paramiko),
            "openssh": lambda: up(openssh),
        }
        show(f"{size_bytes // MB} MB up", interleaved(rows, 3))
        rows = {
            "ssh over a ControlMaster": lambda: run_quietly([*bench.ssh(*mux), pour]),
            "paramiko": lambda: down(paramiko),
            "openssh": lambda: down(openssh),
        }
        show(f"{size_bytes // MB} MB down", interleaved(rows, 3))
    paramiko.close()
    openssh.close()


async def listen(place: tuple[str, int], duration_s: float) -> list[float]:
    """Read all streams for a while; return how late each event was, in seconds."""

    async def one() -> list[float]:
        late: list[float] = []
        reader, writer = await asyncio.open_connection(*place)
        until_s = CLOCK.monotonic_s() + duration_s
        while CLOCK.monotonic_s() < until_s:
            line = await reader.readline()
            if line.startswith(b"data: "):
                late.append(CLOCK.monotonic_s() - float(line[6:]))
        writer.close()
        return late

    return [
        late for lates in await asyncio.gather(*(one() for _ in range(STREAMS))) for late in lates
    ]


def cpu_s(pids: list[int]) -> float:
    total = 0.0
    for pid in pids:
        with contextlib.suppress(OSError):
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            total += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return total


def measure_streams(bench: Bench, duration_s: float) -> None:
    print(f"\n{STREAMS} streams x {EVENTS_PER_S} events/s for {duration_s:g} s")
    print("  way                    events/s   late p50   p99   max ms   CPU here   CPU of helpers")
    with subprocess.Popen(
        [sys.executable, "-c", EVENT_SERVER, str(EVENTS_PER_S)], stdout=subprocess.PIPE
    ) as server:
        assert server.stdout is not None
        port = int(server.stdout.readline())
        for backend in (Backend.LOCAL, Backend.PARAMIKO, Backend.OPENSSH):
            transport = bench.open(backend)
            with transport.forward(port) as place:
                helpers = [pid for pid in descendants(os.getpid()) if pid != server.pid]
                helpers = [pid for pid in helpers if pid not in descendants(bench.sshd.process.pid)]
                before_s, helped_s = sum(os.times()[:2]), cpu_s(helpers)
                late = sorted(asyncio.run(listen(place, duration_s)))
                here = (sum(os.times()[:2]) - before_s) / duration_s
                there = (cpu_s(helpers) - helped_s) / duration_s
            transport.close()
            p50, p99 = late[len(late) // 2], late[int(len(late) * 0.99)]
            print(
                f"  {backend:<20} {len(late) / duration_s:10.0f} {p50 * 1000:10.2f}"
                f" {p99 * 1000:6.1f} {late[-1] * 1000:7.1f} {here:9.0%} {there:14.0%}"
            )
        server.terminate()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer repeats and smaller sizes")
    is_quick = parser.parse_args().quick
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        servers = Sshds(folder, make_key(folder / "id_ed25519"))
        bench = Bench(servers.start(), HandshakeGate(), folder)
        try:
            measure_connect(bench, 5 if is_quick else 15)
            measure_warm(bench, 10 if is_quick else 40)
            measure_logins(bench, 20 if is_quick else 60)
            measure_bulk(bench, (16 if is_quick else 64) * MB)
            measure_streams(bench, 3.0 if is_quick else 8.0)
        finally:
            servers.stop()


if __name__ == "__main__":
    main()
