"""Wall clocks that are hours off, on the host and here: leases and runs don't care."""

import subprocess
import sys

import pytest

from fleetctl.errors import ExitCode

pytestmark = [pytest.mark.lab, pytest.mark.timeout(180)]

FLAG = '[env]\nSGLANG_DSV4_GE_DIFF = "1"\n'
SKEW = """
import runpy, sys, time
real = time.time
time.time = lambda: real() + ({skew_s})
"""
# arguments are -I -S AGENT VERB STATE, or -I -S -c INSTALLER …
HOST_PYTHON = f"""#!/bin/sh
[ "$3" = -c ] && exec /usr/bin/python3 "$@"
exec /usr/bin/python3 -I -S -c '{SKEW}
sys.argv = sys.argv[3:]
runpy.run_path(sys.argv[0], run_name="__main__")' "$@"
"""
HERE = SKEW + "runpy.run_module('fleetctl', run_name='__main__')\n"
PYTHON = "/usr/local/bin/python-of-another-hour"


@pytest.mark.parametrize(("host_s", "here_s"), [(5 * 3600, -3 * 3600)], ids=["8 h apart"])
def test_a_run_between_clocks_that_are_hours_apart_keeps_its_lease_and_restores(
    person, untouched, lab_hosts, host_s, here_s
):
    wrapper = HOST_PYTHON.format(skew_s=host_s)
    argv = lab_hosts.lab.ssh_argv("lab-1", [f"cat >{PYTHON} && chmod +x {PYTHON}"])
    subprocess.run(argv, input=wrapper.encode(), check=True)
    inventory = person.folder / "inventory.toml"
    told = f'[defaults]\nagent_python = "{PYTHON}"'
    inventory.write_text(person.inventory.read_text().replace("[defaults]", told, 1))
    spec = person.spec(FLAG, trial_s=6.0)
    spec.write_text('lease = "4s"\n' + spec.read_text())
    words = ["run", str(spec), "--inventory", str(inventory)]
    process = subprocess.Popen(
        [sys.executable, "-c", HERE.format(skew_s=here_s), *words],
        cwd=person.folder,
        env=person.environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    person.wait_for(process, "deployed")
    status = person.run("status", "--host", "lab-1")
    _, said = process.communicate(timeout=120)
    lab_hosts.run("lab-1", f"rm {PYTHON}")

    assert "s unless renewed" in status.stdout
    assert process.returncode == ExitCode.INVALID, said
    assert "went away" not in said
    untouched()
