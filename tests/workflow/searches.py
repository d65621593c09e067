"""Searches on a site that does what a test says, and trials that never were."""

import contextlib
from types import SimpleNamespace

from fleetctl.errors import DriftError, ExitCode, NotReady
from fleetctl.spec.arms import Arm
from fleetctl.spec.experiment import CommandSpec, Trials
from fleetctl.spec.ready import Ready
from fleetctl.store.campaign import CellResult
from fleetctl.workflow.bisect_ground import Build
from fleetctl.workflow.bisect_loop import Question
from fleetctl.workflow.job import Job

JOB = Job(
    kind="bisect",
    purpose="p",
    target="a",
    arms=(),
    workload=CommandSpec(kind="command", argv=("true",)),
    trials=Trials(),
    ready=Ready(),
    lease_s=60.0,
)


class Site:
    """Hosts on which each build does what `behaviour` says: raise, or give these facts."""

    def __init__(self, behaviour) -> None:
        self.behaviour = behaviour
        self.taken = 0
        self.measured: list[tuple[str, int, int]] = []
        self.plan = SimpleNamespace(site="site")
        self.has_changed = False

    @contextlib.contextmanager
    def held(self, *_):
        self.taken += 1
        yield self

    def measure(self, run, _job):
        self.measured.append((run.arm, run.run, run.attempt))
        self.has_changed = True
        found = self.behaviour(run)
        if isinstance(found, Exception):
            raise found
        return CellResult(run.id, run.digest, "a", "", f"trials/{len(self.measured)}", found)


class Asks:
    """A search that wants each of some builds once."""

    def __init__(self, *keys, unfit=(), must_work=()) -> None:
        self.keys = keys
        self.unfit = unfit
        self.must_work = must_work

    def next(self, answers, unbuildable):
        done = {answered.asked.key for answered in answers} | set(unbuildable)
        left = [key for key in self.keys if key not in done]
        if not left:
            return None
        return Question(left[0], f"build {left[0][0]}", must_work=left[0] in self.must_work)

    def build(self, question):
        if question.key in self.unfit:
            raise DriftError("it does not fit", why="", next_step="")
        return Build(Arm(question.build))


def failed(kind=NotReady, code=ExitCode.FAILED_RESTORED):
    return kind("it did not start", why="no kernel", next_step="", exit_code=code)


def facts(bad, sessions=40):
    return {
        "trial": "t", "arm": "a", "host": "h", "host_class": "c", "run_index": 0, "block": "",
        "block_runs": 0, "started_s": 0.0, "wall_s": 1.0, "boot": "b", "corrupted": bad,
        "counted": sessions, "infra": 0, "planned": sessions, "counts": {}, "line": "",
        "exposure": {}, "lag_p99_ms": None, "concurrency_share": None, "patches": {},
        "processes": [], "workload_sha256": "w",
    }  # fmt: skip
