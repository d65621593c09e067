"""The campaign's command line.

python -m benchmarks.faults --faults 2000            on lab hosts, all kinds; minutes to hours
python -m benchmarks.faults --plain --faults 40      on directories: kills, errors; about a minute
python -m benchmarks.faults --plain --only "error in" --faults 3000   every call fails; an hour
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.faults import inside, outside
from benchmarks.faults.campaign import Order, run, table
from benchmarks.faults.failing import failing_calls
from benchmarks.faults.fault import Kind
from benchmarks.faults.killing import VERBS, Call, CallKind, killable_calls
from benchmarks.faults.lab_site import open_lab
from benchmarks.faults.log import Log
from benchmarks.faults.plain import plain_site
from benchmarks.faults.site import Site
from fleetctl.lab import Lab

BEGIN, END = "<!-- campaign -->", "<!-- end of campaign -->"
SMALL_DISK_BYTES = 96 * 1024 * 1024
LAB_KINDS: dict[str, Kind] = {
    "controller SIGKILL at a journal entry": outside.kill_controller,
    "network cut": outside.cut_network,
    "frozen sshd": outside.freeze_sshd,
    "power cut and boot": outside.cut_power,
    "power cut during the recovery of a power cut": outside.cut_power_twice,
    "two controllers at once": outside.two_controllers,
    "agent OOM-killed at a random moment": outside.kill_agent,
    "service OOM-killed at a random moment": inside.kill_service,
    "read-only tree before the apply": inside.apply_read_only,
    "read-only tree after the apply": inside.make_read_only,
    "immutable file": inside.make_immutable,
    "clock jump": inside.jump_clock,
    "new service never stops": inside.never_stop,
    "old service never stops": inside.hang_before,
    "unit masked": inside.mask_unit,
    "crash loop or missing binary": inside.bad_service,
    "human edit after the apply": inside.edit_by_hand,
    "human edit during the apply": inside.edit_during,
}
SMALL_DISK_KINDS: dict[str, Kind] = {
    "full disk before the apply": inside.fill_disk_before,
    "full disk during the apply": inside.fill_disk_during,
    "full disk after the apply": inside.fill_disk_after,
}


def main() -> int:
    """Run a campaign; the exit code is the number of lost hosts, at most 100."""
    options = _options()
    log = Log(Path(options.log) if options.log else None)
    with tempfile.TemporaryDirectory(prefix="fleetctl-faults-") as root:
        (_plain if options.plain else _lab)(options, Path(root), log)
    faults = list(log.faults.values())
    lost = sum(fault.is_lost for fault in faults)
    summary = f"{len(faults)} faults, {lost} hosts lost"
    if options.json:
        json.dump([vars(fault) for fault in faults], sys.stdout)
    else:
        print(f"{table(faults)}\n\n{summary}")
    if options.write:
        page = Path(options.write)
        page.write_text(with_table(page.read_text(), f"{table(faults)}\n\n{summary}."))
    return min(lost, 100)


def with_table(page: str, text: str) -> str:
    """Return a page with the text between its two marks replaced."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{text}\n{END}{after}"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.faults", description=__doc__)
    parser.add_argument("--faults", type=int, default=2000, help="how many to inject")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--hosts", type=int, default=6, help="worked on at the same time")
    parser.add_argument("--plain", action="store_true", help="directories instead of lab hosts")
    parser.add_argument("--only", default="", help="kinds whose names contain this")
    parser.add_argument("--log", default="", help="file of faults; those in it are not repeated")
    parser.add_argument("--write", default="", help="page whose table is replaced")
    parser.add_argument("--json", action="store_true", help="print every fault, not the table")
    return parser.parse_args()


def _plain(options: argparse.Namespace, root: Path, log: Log) -> None:
    sites = [plain_site(root, f"plain-{number}") for number in range(options.hosts)]
    try:
        run(_left(_calls(sites[0], options.faults, options), log, options), sites, log.add)
    finally:
        for site in sites:
            site.close()


def _lab(options: argparse.Namespace, root: Path, log: Log) -> None:
    try:
        sites = open_lab(root / "lab", options.hosts)
        small = open_lab(root / "small", max(1, options.hosts // 6), disk_bytes=SMALL_DISK_BYTES)
        others = _others(LAB_KINDS, options, share=0.30)
        on_small = _others(SMALL_DISK_KINDS, options, share=0.03)
        kills = _calls(sites[0], options.faults - len(others) - len(on_small), options)
        orders = [*others, *kills]
        random.Random(options.seed).shuffle(orders)
        run(_left(on_small, log, options), small, log.add)
        run(_left(orders, log, options), sites, log.add)
    finally:
        for name in ("lab", "small"):
            Lab.at(root / name).down()


def _left(orders: Sequence[Order], log: Log, options: argparse.Namespace) -> list[Order]:
    left = [order for order in orders if order.key not in log.faults]
    return left[: max(0, options.faults - len(log.faults))]


def _calls(site: Site, count: int, options: argparse.Namespace) -> list[Order]:
    """Return `count` kills and errors, spread evenly over all calls; each once if there is room."""
    orders: list[Order] = []
    if _is_wanted("kill -9", options):
        orders += [
            Order(kind, str(call), _at(inject, call), options.seed)
            for kind, (inject, calls) in killable_calls(site).items()
            for call in calls
        ]
    if _is_wanted("error", options):
        orders += [
            Order(kind, str(failing), inject, options.seed)
            for kind, failing, inject in failing_calls(site, options.seed)
        ]
    chosen = [order for order in orders if options.only in order.kind]
    print(f"{len(chosen)} calls to be disturbed; {count} are tried", file=sys.stderr)
    step = max(1.0, len(chosen) / max(count, 1))
    return [chosen[int(i * step)] for i in range(min(count, len(chosen)))]


def _is_wanted(what: str, options: argparse.Namespace) -> bool:
    """Tell whether any kind of this is asked for: to count its calls takes a dozen runs."""
    return any(options.only in f"{what} in {verb}" for verb in VERBS)


def _at(inject: CallKind, call: Call) -> Kind:
    return lambda attempt: inject(attempt, call)


def _others(kinds: dict[str, Kind], options: argparse.Namespace, *, share: float) -> list[Order]:
    chosen = {name: kind for name, kind in kinds.items() if options.only in name}
    each = max(1, round(options.faults * share / max(len(chosen), 1)))
    return [
        Order(name, str(number), kind, options.seed * 1000 + number)
        for number in range(each)
        for name, kind in chosen.items()
    ]


if __name__ == "__main__":
    sys.exit(main())
