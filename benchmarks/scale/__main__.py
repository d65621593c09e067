"""What a large fleet costs; docs/scale.md holds what this prints.

python -m benchmarks.scale engine          faults reported of the engine, tried again
python -m benchmarks.scale queue           the queue's database, on this machine
python -m benchmarks.scale load            client processes that drive many slow streams
python -m benchmarks.scale fleet           1,000 hosts and 100,000 sessions, simulated
"""

from __future__ import annotations

import argparse
import os
import sys
from importlib.metadata import version

from benchmarks.scale.postgres import postgres


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["engine", "queue", "load", "fleet"])
    parser.add_argument("--cells", type=int, default=2000)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--hosts", type=int, default=1000)
    options = parser.parse_args()
    {"engine": _engine, "queue": _queue, "load": _load, "fleet": _fleet}[options.what](options)
    return 0


def _engine(options: argparse.Namespace) -> None:
    from benchmarks.scale.engine import CHECKS, bench
    from fleetctl.queue.address import parse_address

    del options
    print(f"dbos {version('dbos')}")
    with postgres() as server:
        os.environ.update(server.environment)
        with bench(parse_address(server.new_database())) as made:
            for check in CHECKS:
                found = check(made)
                word = "holds" if found.holds else "FAILS"
                print(f"{found.report:6} {check.__name__:18} {word}: {found.seen}")


def _queue(options: argparse.Namespace) -> None:
    from benchmarks.scale.queue import measure

    with postgres(fsync=True) as server:
        os.environ.update(server.environment)
        url = server.new_database()
        for row in measure(url, cells=options.cells, workers=options.workers):
            print(f"{row.what:52} {row.value:10.2f} {row.unit}", flush=True)


def _load(options: argparse.Namespace) -> None:
    from benchmarks.scale.load import measure

    del options
    for line in measure():
        print(line, flush=True)


def _fleet(options: argparse.Namespace) -> None:
    from benchmarks.scale.fleet import simulate, table

    for line in table(simulate(hosts) for hosts in (10, 100, 300, options.hosts)):
        print(line)


if __name__ == "__main__":
    sys.exit(main())
