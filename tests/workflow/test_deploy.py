"""What is read back of a deployed arm."""

from fleetctl.serving.proof import Proof, flags_seen
from fleetctl.spec.arms import Arm
from fleetctl.transaction.code import CodeReport, ModuleSource, ProcessCode
from fleetctl.transaction.snapshot import Process, UnitReport
from fleetctl.workflow.deploy import Prepared, _declared, _named, live_digest, proven_line


def report(**sources: str | None) -> CodeReport:
    found = tuple(
        ModuleSource(name, "source" if digest else "missing", sha256=digest)
        for name, digest in sources.items()
    )
    return CodeReport("u", (ProcessCode(1, "py", "/v", "3.11", "/", "", "m", 1.0, found),))


def test_one_module_is_known_by_the_digest_of_its_file():
    assert live_digest(report(a="1" * 64, b="2" * 64), ["a"]) == "1" * 64


def test_a_patch_of_several_modules_differs_as_soon_as_one_of_them_does():
    digests = {
        live_digest(report(a="1" * 64, b=b, c="3" * 64), ["a", "b"])
        for b in ("2" * 64, "4" * 64, None)
    }

    assert len(digests) == 3


def unit(*processes: Process) -> UnitReport:
    return UnitReport("u", "active", "running", "success", 0, "i", 1, processes, ())


def process(pid: int, *, is_readable: bool = True, **flags: str) -> Process:
    return Process(pid, 1, "py", 0, tuple(flags.items()), is_readable)


def test_an_arm_that_is_as_found_says_that_nothing_was_to_be_proven_and_what_was_looked_at():
    report = unit(
        process(7, A="0", B="x"), process(8, A="1"), process(9, A="1"), process(10, A="0", B="x")
    )

    line = proven_line("control", Proof(), flags_seen(report, ("A", "B")))

    assert line == (
        "control is as found: no file or flag was changed, so nothing had to be proven; looked at: "
        'A="0" in 2 processes; A="1" in 2 processes; B="x" in 2 processes; B unset in 2 processes'
    )
    assert proven_line("a", Proof(), ()).endswith("so nothing had to be proven")


def test_what_was_shown_of_an_arm_is_counted():
    assert proven_line("a", Proof(("x",)), ("y",)) == "proven: 1 fact about what runs"


def test_a_process_whose_environment_may_not_be_read_is_not_called_without_a_flag():
    report = unit(process(7, is_readable=False), process(8))

    assert flags_seen(report, ("A",)) == ("A unset in process 8",)


def test_flags_that_arms_to_come_may_set_are_read_back_from_the_first_trial_on():
    """A search that is resumed knows other arms by then; its trials must say the same all along."""
    arms = {"a": Arm("a", flags={"A": "1"})}
    one = Prepared(None, None, {}, arms, {}, (), flags=("A", "Z"))

    assert _named(one) == ("A", "Z")
    assert _declared(one, process(7, A="1", Z="2", OTHER="3")) == {"A": "1", "Z": "2"}
