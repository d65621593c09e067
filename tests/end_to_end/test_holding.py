"""Two people, Ctrl-C, kill -9, keep and rollback: the host always comes back."""

import time

import pytest

from fleetctl.errors import ExitCode

pytestmark = pytest.mark.lab

FLAG = '[env]\nSGLANG_DSV4_GE_DIFF = "1"\n'


@pytest.mark.parametrize("moment", ["held", "deploying", "deployed", "trial"])
def test_ctrl_c_at_any_moment_restores_the_host(person, untouched, moment):
    process = person.start("run", person.spec(FLAG, runs=2, trial_s=2.0))
    person.wait_for(process, moment)

    code, said = person.interrupt(process)

    assert code in (ExitCode.INTERRUPTED, ExitCode.FAILED_RESTORED), said
    assert code != ExitCode.OK
    assert "restored" in said
    untouched()


def test_a_second_ctrl_c_leaves_at_once_and_the_host_restores_itself(person, untouched, lab_hosts):
    spec = person.spec(FLAG + 'lease = "5s"\n', trial_s=30.0)
    text = spec.read_text()
    spec.write_text('lease = "5s"\n' + text.replace('lease = "5s"\n', ""))
    process = person.start("run", spec)
    person.wait_for(process, "deployed")

    code, said = person.interrupt(process, times=2)

    assert code == ExitCode.INTERRUPTED
    assert "dead-man" in said
    wait_until_free(person)
    untouched()


def test_a_killed_controller_leaves_a_host_that_restores_itself(person, untouched):
    spec = person.spec(FLAG, trial_s=30.0)
    spec.write_text('lease = "5s"\n' + spec.read_text())
    process = person.start("run", spec)
    person.wait_for(process, "deployed")
    process.kill()
    process.communicate()

    wait_until_free(person)
    untouched()


def wait_until_free(person) -> None:
    for _ in range(40):
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


def test_a_file_that_a_person_changed_meanwhile_is_left_alone_and_reported(person, lab_hosts):
    script = "/srv/dsv4/serve_dsv4_decode.sh"
    before = lab_hosts.run("lab-1", f"cat {script}; stat -c '%a %U %Y' {script}")
    process = person.start("run", person.spec(FLAG, trial_s=8.0))
    person.wait_for(process, "trial")
    lab_hosts.run("lab-1", f"echo '# a note at 3 am' >> {script}")

    _, said = process.communicate(timeout=90)

    if "a note at 3 am" not in said:  # the edit fell into the control's time: plain drift
        assert process.returncode != ExitCode.OK
    else:
        assert process.returncode == ExitCode.CONFLICT, said
    assert "a note at 3 am" in lab_hosts.run("lab-1", f"cat {script}")
    forced = person.run("rollback", "--force", "--host", "lab-1")
    if process.returncode == ExitCode.CONFLICT:
        assert forced.returncode == ExitCode.OK, forced.stdout
        assert lab_hosts.run("lab-1", f"cat {script}; stat -c '%a %U %Y' {script}") == before
