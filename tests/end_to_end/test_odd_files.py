"""Patches onto files that are hard to bring back: byte for byte as before, or refused in time."""

import pytest

from fleetctl.errors import ExitCode

pytestmark = [pytest.mark.lab, pytest.mark.timeout(240)]

ODD = "/srv/dsv4/odd"
MAKE = f"""
set -e
mkdir {ODD} && cd {ODD}
mkdir -m 2775 shared && chgrp games shared
printf 'real\\n' >real.txt && chmod 640 real.txt && ln -s real.txt link.txt
printf 'locked\\n' >locked.txt && chmod 444 locked.txt
touch -d '2001-02-03 04:05:06.7' locked.txt
printf 'acl\\n' >acl.txt && setfacl -m u:nobody:rw,g:games:r acl.txt
printf 'attr\\n' >attr.txt
/usr/bin/python3 -c 'import os; os.setxattr("attr.txt", "user.note", b"kept")'
printf 'mine\\n' >shared/group.txt && chown nobody:games shared/group.txt
"""
# a directory's own time moves with any rename inside it
LOOK = f"""
cd {ODD}
find . ! -type d -printf '%p %y %m %u %g %l %n %T@ ' -exec sha256sum {{}} \\; | sort
echo ---
find . -type d -printf '%p %m %u %g\\n' | sort
find . ! -type l | sort | xargs getfacl 2>/dev/null
/usr/bin/python3 -c 'import os; print(os.getxattr("attr.txt", "user.note"))'
"""


def patches(person, *names):
    """Return the spec's patch that puts new text into files below the odd folder."""
    for name in names:
        person.payload(f"odd/{name}", f"new {name}\n")
    history = "[control]\nhistory = { corrupted = 1, sessions = 10 }\n"
    return f'[[patch]]\nsource = "payload/odd/"\npath = "odd"\n{history}'


@pytest.fixture
def odd(lab_hosts):
    """The odd files of lab-1; a function looks at everything about them."""
    lab_hosts.run("lab-1", MAKE)
    yield lambda: lab_hosts.run("lab-1", LOOK)
    lab_hosts.run("lab-1", f"rm -rf {ODD}")


def test_links_modes_acls_attributes_groups_and_times_come_back(person, odd, lab_hosts):
    before = odd()
    names = ["link.txt", "locked.txt", "acl.txt", "attr.txt", "shared/group.txt"]
    process = person.start("run", person.spec(patches(person, *names), trial_s=2.0))
    person.wait_for(process, "deployed")
    during = odd()
    _, said = process.communicate(timeout=120)

    assert process.returncode == ExitCode.INVALID, said
    changed, kept = during.split("---"), before.split("---")
    assert changed[0] != kept[0]
    # what fleetctl writes keeps its mode, owner, group, links, ACL and attributes
    assert [line.split()[:5] for line in changed[0].splitlines()] == [
        line.split()[:5] for line in kept[0].splitlines()
    ]
    assert changed[1] == kept[1]
    assert odd() == before


def test_what_could_not_be_brought_back_is_refused_before_the_first_change(
    person, odd, untouched, lab_hosts
):
    lab_hosts.run("lab-1", f"cd {ODD} && ln real.txt twin.txt")

    done = person.run("run", person.spec(patches(person, "real.txt")))

    assert done.returncode == ExitCode.REFUSED, done.stderr
    assert "2 hard links" in done.stderr
    assert "deploying" not in done.stderr
