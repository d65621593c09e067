"""Two people, Ctrl-C, kill -9, keep and rollback: the host always comes back."""

import signal
import subprocess
import time

import pytest

from fleetctl.errors import ExitCode
from tests.host.processes import processes_with, wait_until

pytestmark = pytest.mark.lab

FLAG = '[env]\nSGLANG_DSV4_GE_DIFF = "1"\n'


# a closed terminal and systemd's stop are as good as Ctrl-C
@pytest.mark.parametrize(
    ("moment", "number"),
    [
        ("held", signal.SIGTERM),
        ("deploying", signal.SIGHUP),
        ("deployed", signal.SIGINT),
        ("trial", signal.SIGTERM),
    ],
)
def test_ctrl_c_at_any_moment_restores_the_host(person, untouched, moment, number):
    process = person.start("run", person.spec(FLAG, runs=2, trial_s=2.0))
    person.wait_for(process, moment)

    code, said = person.interrupt(process, number)

    assert code in (ExitCode.INTERRUPTED, ExitCode.FAILED_RESTORED), said
    assert "restored" in said
    if code == ExitCode.INTERRUPTED:
        assert "fleetctl resume 2" in said
    untouched()


def programs_of(person) -> list[int]:
    """Return the processes of a person's workload."""
    return processes_with(str(person.folder / "trial.py"))


def start_long(person) -> subprocess.Popen[str]:
    """Start a run with a short lease, and wait until its workload is under way."""
    spec = person.spec(FLAG, trial_s=30.0)
    spec.write_text('lease = "8s"\n' + spec.read_text())
    process = person.start("run", spec)
    person.wait_for(process, "measuring")
    wait_until(lambda: programs_of(person) != [])
    return process


def test_a_second_ctrl_c_leaves_at_once_and_the_host_restores_itself(person, untouched):
    process = start_long(person)

    code, said = person.interrupt(process, signal.SIGHUP, signal.SIGINT)

    assert code == ExitCode.INTERRUPTED
    assert "restores itself" in said
    wait_until(lambda: programs_of(person) == [])
    wait_until_free(person)
    untouched()


def test_a_killed_controller_leaves_a_host_that_restores_itself(person, untouched):
    process = start_long(person)
    process.kill()
    process.communicate()

    wait_until(lambda: programs_of(person) == [])
    wait_until_free(person)
    untouched()


def wait_until_free(person) -> None:
    for _ in range(90):
        if "free; nothing is held" in person.run("status", "--host", "lab-1").stdout:
            return
        time.sleep(0.5)
    raise AssertionError(person.run("status", "--host", "lab-1").stdout)


def test_a_second_run_on_the_same_host_is_refused_with_the_holder_s_name(person, untouched):
    process = person.start("run", person.spec(FLAG, name="first", trial_s=20.0))
    person.wait_for(process, "held")

    second = person.run("run", person.spec(FLAG, name="second"))
    status = person.run("status", "--host", "lab-1")
    code, said = person.interrupt(process)

    assert second.returncode == ExitCode.REFUSED
    assert "is held by" in second.stderr
    assert "first" in second.stderr
    assert "(first)" in status.stdout
    assert code != ExitCode.OK, said
    untouched()


def test_a_kept_change_is_shown_and_rolled_back_without_local_state(person, untouched, lab_hosts):
    kept = person.run("run", person.spec(FLAG), "--keep")
    assert "kept" in kept.stderr, kept.stderr
    script = lab_hosts.run("lab-1", "cat /srv/dsv4/serve_dsv4_decode.sh")
    assert "export SGLANG_DSV4_GE_DIFF=1" in script

    shown = person.run("rollback", "--list", "--host", "lab-1")
    assert "(e)" in shown.stdout
    back = person.run("rollback", "--host", "lab-1")

    assert back.returncode == ExitCode.OK, back.stderr + back.stdout
    assert "restored /srv/dsv4/serve_dsv4_decode.sh" in back.stdout
    lab_hosts.wait_until_active("lab-1")
    untouched()


def test_a_run_that_was_to_keep_its_change_keeps_it_when_it_is_resumed(
    person, untouched, lab_hosts
):
    process = person.start("run", person.spec(FLAG, trial_s=2.0), "--keep")
    person.wait_for(process, "trial")
    person.interrupt(process)

    resumed = person.run("resume", "latest")

    assert "lab-1: kept; `fleetctl rollback" in resumed.stderr, resumed.stderr
    back = person.run("rollback", "--host", "lab-1")
    assert "restored /srv/dsv4/serve_dsv4_decode.sh" in back.stdout
    lab_hosts.wait_until_active("lab-1")
    untouched()


def test_a_file_that_a_person_changed_meanwhile_is_left_alone_and_shown(
    person, untouched, lab_hosts
):
    script = "/srv/dsv4/serve_dsv4_decode.sh"
    history = FLAG + "[control]\nhistory = { corrupted = 1, sessions = 10 }\n"
    process = person.start("run", person.spec(history, trial_s=3.0))
    person.wait_for(process, "deployed")
    lab_hosts.run("lab-1", f"echo '# a note at 3 am' >> {script}")

    _, said = process.communicate(timeout=90)
    again = person.run("rollback", "--host", "lab-1")

    for shown in (said, again.stdout):
        assert f"{script}: changed by somebody else; as it was: /var/lib/fleetctl/objects/" in shown
        assert "+# a note at 3 am" in shown
    assert (process.returncode, again.returncode) == (ExitCode.CONFLICT, ExitCode.CONFLICT)
    assert "a note at 3 am" in lab_hosts.run("lab-1", f"cat {script}")
    forced = person.run("rollback", "--force", "--host", "lab-1")
    assert forced.returncode == ExitCode.OK, forced.stdout
    lab_hosts.wait_until_active("lab-1")
    untouched()


def test_a_change_is_kept_on_every_host_of_a_site_or_on_none(person, untouched, lab_hosts):
    inventory = person.folder / "site.toml"
    router = '[defaults]\nrouter_url = "http://127.0.0.1:30002"'
    inventory.write_text(person.inventory.read_text().replace("[defaults]", router, 1))
    spec = person.spec(FLAG + "[control]\nhistory = { corrupted = 1, sessions = 10 }\n")
    spec.write_text(spec.read_text().replace('"lab-1"', '"lab"'))
    process = person.start("run", spec, "--keep", "--inventory", inventory)
    person.wait_for(process, "deployed")
    # who is logged in stays, and nobody new comes in: a commit needs a new login
    door = lab_hosts.lab.ssh_argv("lab-2", ["systemctl stop ssh; read line; systemctl start ssh"])
    with subprocess.Popen(door, stdin=subprocess.PIPE) as held_open:
        _, said = process.communicate(timeout=90)
        held_open.communicate(b"\n")

    assert process.returncode == ExitCode.FAILED_RESTORED, said
    assert "cannot reach lab-2" in said
    assert "lab-1: restored" in said
    assert "lab-2: restored" in said
    assert ": kept;" not in said
    untouched()
