"""Nothing counts as proven that was not shown; each trap is named."""

import pytest

from fleetctl.errors import ExitCode, NotProven
from fleetctl.serving.proof import (
    ExpectedModule,
    Proof,
    prove_code,
    prove_flags,
    prove_markers,
    prove_own_view,
    require,
)
from fleetctl.transaction.code import CodeReport, ModuleSource, ProcessCode
from fleetctl.transaction.snapshot import Process, UnitReport

UNIT = "s.service"
SHA = "a" * 64


def unit(*processes: Process) -> UnitReport:
    return UnitReport(UNIT, "active", "running", "success", 0, "i", 7, processes, ())


def process(pid: int = 7, readable: bool = True, **flags: str) -> Process:
    return Process(pid, 1, "/usr/bin/python3.11", 100, tuple(flags.items()), readable)


class TestFlags:
    def test_every_process_counts_not_only_the_main_one(self):
        report = unit(process(7, A="1"), process(8, A="0"))

        proof = prove_flags(report, {"A": "1"})

        assert proof.missing == (
            'process 8 (/usr/bin/python3.11): asked for A="1", runs with A="0"',
        )
        assert proof.shown == ()

    @pytest.mark.parametrize(
        ("running", "wanted", "holds"),
        [
            ({"A": "1"}, {"A": "1"}, True),
            ({"A": "1 "}, {"A": "1"}, False),
            ({}, {"A": "1"}, False),
            ({}, {"A": None}, True),
            ({"A": ""}, {"A": None}, False),
            ({"A": ""}, {"A": ""}, True),
        ],
    )
    def test_a_flag_holds_only_byte_for_byte_and_unset_means_absent(self, running, wanted, holds):
        assert prove_flags(unit(process(**running)), wanted).holds is holds

    def test_what_may_not_be_read_is_not_proven(self):
        assert not prove_flags(unit(process(readable=False)), {"A": None}).holds

    def test_a_unit_without_processes_proves_nothing(self):
        assert not prove_flags(unit(), {"A": None}).holds

    def test_nothing_asked_for_needs_no_proof(self):
        assert prove_flags(unit(), {}) == Proof()

    def test_the_limits_of_environ_are_said(self):
        assert "environment at exec" in prove_flags(unit(process(A="1")), {"A": "1"}).notes[0]

    def test_the_server_s_own_view_may_contradict(self):
        assert not prove_own_view({"A": "1"}, {"A": "0"}).holds
        assert prove_own_view({"A": "1", "B": None}, {"A": 1, "B": None}).holds
        assert prove_own_view({"A": "1"}, {}).holds


def source(**changes) -> ModuleSource:
    facts = {
        "module": "serve.indexer",
        "kind": "source",
        "file": "/t/serve/indexer.py",
        "sha256": SHA,
        "bytecode": "none",
        "changed_s": 50.0,
    }
    return ModuleSource(**{**facts, **changes})


def code(*modules: ModuleSource, pid: int = 7, problem: str = "") -> CodeReport:
    one = ProcessCode(pid, "/v/bin/python", "/v", "3.11", "/t", "", "m", 100.0, modules, problem)
    return CodeReport(UNIT, (one,))


EXPECTED = [ExpectedModule("serve.indexer", "/t/serve/indexer.py", SHA)]


class TestCode:
    def test_the_deployed_file_in_a_younger_process_is_proven(self):
        assert prove_code(code(source()), EXPECTED).holds

    @pytest.mark.parametrize(
        ("changes", "says"),
        [
            ({"file": "/other/serve/indexer.py"}, "imported from /other"),
            ({"sha256": "b" * 64}, "not the file that was deployed"),
            (
                {"bytecode": "stale", "bytecode_file": "/t/x.pyc"},
                "stale bytecode would run: /t/x.pyc",
            ),
            ({"changed_s": 100.5}, "changed after the process had started"),
            ({"kind": "missing", "at": "serve", "searched": ("/t",)}, "`serve` is not found in /t"),
            (
                {"kind": "missing", "at": "serve", "shadow": ("/c/serve",)},
                "/c/serve is a directory",
            ),
            ({"kind": "namespace"}, "namespace package"),
            ({"kind": "extension", "file": "/t/x.so"}, "can't replace"),
            ({"kind": "not-a-package", "at": "serve", "file": "/t/serve.py"}, "not a package"),
        ],
    )
    def test_each_trap_is_named(self, changes, says):
        (missing,) = prove_code(code(source(**changes)), EXPECTED).missing

        assert says in missing
        assert "process 7" in missing

    def test_a_process_that_can_not_be_asked_is_not_proven(self):
        assert not prove_code(code(problem="killed"), EXPECTED).holds

    def test_the_inventory_s_interpreter_is_no_proof_of_a_running_process(self):
        assert not prove_code(code(source(), pid=0), EXPECTED).holds


class TestFilesByPath:
    FILE = "/t/kernels/table.py"
    EXPECTED = (ExpectedModule(FILE, FILE, SHA),)

    def file(self, **changes) -> ModuleSource:
        return source(**{"module": self.FILE, "file": self.FILE, **changes})

    def test_a_file_that_lay_there_before_the_start_is_shown_with_what_that_does_not_show(self):
        proof = prove_code(code(self.file()), self.EXPECTED)

        assert proof.holds
        assert "lay there before the start of process 7" in proof.shown[0]
        assert "who imports it is not shown" in proof.notes[0]

    @pytest.mark.parametrize(
        ("changes", "says"),
        [
            ({"sha256": "b" * 64}, "not the file that was deployed"),
            ({"changed_s": 100.5}, "changed after the process had started"),
            ({"bytecode": "stale", "bytecode_file": "/t/x.pyc"}, "stale bytecode would run"),
            ({"kind": "missing", "file": None, "at": FILE}, "is not found"),
        ],
    )
    def test_each_trap_is_named(self, changes, says):
        (missing,) = prove_code(code(self.file(**changes)), self.EXPECTED).missing

        assert says in missing

    def test_a_service_without_python_shows_the_bytes_on_disk_and_says_so(self):
        proof = prove_code(code(self.file(), pid=0), self.EXPECTED)

        assert proof.holds
        assert any("no Python process" in note for note in proof.notes)
        wrong = code(self.file(sha256="b" * 64), pid=0)
        assert not prove_code(wrong, self.EXPECTED).holds


class TestAbsence:
    GONE = (ExpectedModule("serve.indexer", "/t/serve/indexer.py", None),)

    def test_a_module_that_an_arm_removes_is_shown_to_be_absent(self):
        proof = prove_code(code(source(kind="missing", file=None, at="serve.indexer")), self.GONE)

        assert proof.shown == ("serve.indexer is absent for process 7 (/v/bin/python)",)

    def test_one_that_is_still_there_is_named(self):
        (missing,) = prove_code(code(source()), self.GONE).missing

        assert "/t/serve/indexer.py is still there" in missing


class TestMarkers:
    def test_once_in_each_process(self):
        lines = [(7, "x [variant] indexer=a y"), (8, "[variant] indexer=a")]

        assert prove_markers(lines, ["[variant] indexer=a"], [7, 8]).holds
        assert (
            "process 9 never" in prove_markers(lines, ["[variant] indexer=a"], [7, 8, 9]).missing[0]
        )

    def test_none_and_twice(self):
        assert "no process logged" in prove_markers([(7, "other")], ["mark"], [7]).missing[0]
        twice = prove_markers([(7, "mark"), (7, "mark")], ["mark"], [7])
        assert "more than once" in twice.missing[0]

    def test_what_helps_with_a_marker_is_the_line_that_came_nearest(self):
        lines = [(7, "INFO started"), (7, "09:01 [variant] indexer=persistent sha256=ab")]
        proof = prove_markers(lines, ["[variant] indexer=persistent_logits"], [7])

        assert 'the nearest line was "09:01 [variant] indexer=persistent' in proof.missing[0]
        with pytest.raises(NotProven) as caught:
            require(proof, "lab-1")
        assert "`marker` in the spec" in caught.value.next_step
        assert "fleetctl env" not in caught.value.next_step

    def test_no_line_is_called_near_that_is_another_one(self):
        assert "nearest" not in prove_markers([(7, "mark x")], ["mark abcdefgh"], [7]).missing[0]

    def test_a_wrong_flag_is_helped_by_where_flags_come_from(self):
        proof = prove_own_view({"A": "1"}, {"A": "0"})

        with pytest.raises(NotProven) as caught:
            require(proof, "lab-1")
        assert "`fleetctl env lab-1`" in caught.value.next_step
        assert "marker" not in caught.value.next_step

    def test_a_log_without_pids_is_said_to_be_one(self):
        proof = prove_markers([(0, "mark")], ["mark"], [7, 8])

        assert proof.holds
        assert proof.notes


def test_an_unproven_host_is_an_error_that_says_it_was_restored():
    with pytest.raises(NotProven) as caught:
        require(Proof(missing=("x",)), "gpu-1")

    assert caught.value.exit_code is ExitCode.FAILED_RESTORED
    require(Proof(shown=("x",)), "gpu-1")
