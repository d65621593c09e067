"""sudo's password and tokens of the environment, sought everywhere during and after whole runs."""

import contextlib
import secrets
import shutil
import subprocess
import threading
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from fleetctl.errors import ExitCode
from tests.end_to_end.fleets import Person

pytestmark = [
    pytest.mark.lab,
    pytest.mark.timeout(240),
    pytest.mark.skipif(shutil.which("sudo") is None, reason="needs sudo"),
]

LOGIN = "fleetfolk"
UNIT = "sglang-dsv4-decode"
SPEC = """
lease = "20s"
[env]
SGLANG_DSV4_GE_DIFF = "1"
[control]
history = { corrupted = 1, sessions = 10 }
"""
DIES = '[[patch]]\nsource = "payload/dies.py"\nmodule = "serve.dsv4.indexer"\n'
# the password goes in over stdin, as nothing of this test may show it either
ADD_PERSON = f"""
useradd -m -s /bin/bash {LOGIN} && chpasswd && echo '{LOGIN} ALL=(ALL) ALL' >/etc/sudoers.d/{LOGIN}
install -d -m 700 -o {LOGIN} -g {LOGIN} /home/{LOGIN}/.ssh
install -m 600 -o {LOGIN} -g {LOGIN} /root/.ssh/authorized_keys /home/{LOGIN}/.ssh/authorized_keys
"""
REMOVE_PERSON = f"userdel -rf {LOGIN} 2>/dev/null; rm -f /etc/sudoers.d/{LOGIN}"
ADD_TOKEN = f"""
install -d /etc/systemd/system/{UNIT}.service.d && umask 077 &&
cat >/etc/systemd/system/{UNIT}.service.d/token.conf && systemctl daemon-reload &&
systemctl restart {UNIT}
"""
# every service of the host inherits it
ADD_MANAGERS = 'read -r token && systemctl set-environment "SITE_TOKEN=$token"'
REMOVE_TOKEN = f"""
systemctl unset-environment SITE_TOKEN
rm -r /etc/systemd/system/{UNIT}.service.d; systemctl daemon-reload; systemctl restart {UNIT}
"""
# where a secret could have been left on the host; its own homes are left out
SEEK = f"""
read -r password; read -r token
for word in "$password" "$token"; do
  grep -rlaF -e "$word" /var/log /var/lib/fleetctl /home/{LOGIN} /tmp /run/log /run/fleetctl \
    /srv/dsv4 2>/dev/null
  journalctl --no-pager -o export | grep -aF -e "$word"
done
true
"""


@dataclass
class Watch:
    """Looks at every process of the machine, those of lab hosts included, again and again."""

    passwords: list[bytes]
    token: bytes
    allowed: set[int] = field(default_factory=set)
    seen: set[tuple[int, str, str]] = field(default_factory=set)
    looks: int = 0
    over: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        while not self.over.wait(0.2):
            self.looks += 1
            for path in Path("/proc").glob("[0-9]*/cmdline"):
                self._look(path, [*self.passwords, self.token])
                # the service and the person's programs have the token of right
                self._look(path.with_name("environ"), self.passwords)

    def _look(self, path: Path, words: list[bytes]) -> None:
        with contextlib.suppress(OSError):
            content = path.read_bytes()
            if any(word in content for word in words):
                program = path.with_name("cmdline").read_bytes()
                self.seen.add((int(path.parent.name), path.name, repr(program)))

    @property
    def leaks(self) -> set[tuple[int, str, str]]:
        """What was seen, but for the environment of those who were started with the password."""
        return {
            (pid, name, program)
            for pid, name, program in self.seen
            if name == "cmdline" or pid not in self.allowed
        }


@dataclass
class Sworn:
    """Somebody who may become root by a password, on lab-2."""

    person: Person
    password: str
    token: str
    watch: Watch
    said: str = ""

    def run(self, *words, expect, transport="paramiko", password=None):
        environment = {
            **self.person.environment,
            "FLEETCTL_INVENTORY": str(self._inventory(transport)),
            "FOLK_PASSWORD": password or self.password,
            "MY_TOKEN": self.token,
        }
        process = subprocess.Popen(
            self.person.argv(*words),
            cwd=self.person.folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        # who was started with it has it; what it starts in turn must not
        self.watch.allowed.add(process.pid)
        said, _ = process.communicate(timeout=120)
        assert process.returncode == expect, said
        self.said += said
        return said

    def _inventory(self, transport: str) -> Path:
        path = self.person.folder / f"{transport}.toml"
        text = self.person.inventory.read_text().replace('user = "root"', f'user = "{LOGIN}"')
        more = f'sudo = {{ password_env = "FOLK_PASSWORD" }}\ntransport = "{transport}"\n'
        path.write_text(text.replace("[defaults]\n", f"[defaults]\n{more}", 1))
        return path


@pytest.fixture
def sworn(lab_hosts, tmp_path):
    """The person, watched; the token is in their own environment, and another in the service's."""
    if "sudo" not in lab_hosts.run("lab-2", "command -v sudo useradd || true"):
        pytest.skip("lab hosts have no sudo")
    password, token = secrets.token_hex(16), secrets.token_hex(16)
    into(lab_hosts, ADD_PERSON, f"{LOGIN}:{password}\n")
    into(lab_hosts, ADD_TOKEN, f"[Service]\nEnvironment=HUB_TOKEN={token}\n")
    into(lab_hosts, ADD_MANAGERS, f"{token}\n")
    watch = Watch([password.encode()], token.encode())
    thread = threading.Thread(target=watch.run)
    thread.start()
    yield Sworn(Person(tmp_path, lab_hosts.inventory), password, token, watch)
    watch.over.set()
    thread.join()
    lab_hosts.run("lab-2", REMOVE_TOKEN + REMOVE_PERSON)


def into(lab_hosts, script: str, text: str) -> str:
    argv = lab_hosts.lab.ssh_argv("lab-2", [script])
    done = subprocess.run(argv, input=text.encode(), capture_output=True, timeout=60, check=True)
    return done.stdout.decode()


def test_no_secret_is_left_anywhere_by_runs_rollbacks_and_failures(sworn, lab_hosts):
    sworn.person.payload("dies.py", 'NAME = "mine"\nraise RuntimeError("no such kernel")\n')
    spec = sworn.person.spec(SPEC.replace('lease = "20s"', ""))
    spec.write_text('lease = "20s"\n' + spec.read_text().replace("lab-1", "lab-2"))
    fails = sworn.person.spec(DIES, name="fails")
    fails.write_text(fails.read_text().replace("lab-1", "lab-2"))

    sworn.run("run", spec, "--keep", expect=ExitCode.INVALID)
    assert "kept" in sworn.said
    sworn.run("rollback", "--host", "lab-2", expect=ExitCode.OK)
    sworn.run("run", fails, expect=ExitCode.FAILED_RESTORED, transport="openssh")
    wrong = secrets.token_hex(16)
    sworn.watch.passwords.append(wrong.encode())
    sworn.run("status", "--host", "lab-2", expect=ExitCode.FAILED_NOT_RESTORED, password=wrong)
    assert "password was not accepted" in sworn.said

    assert sworn.watch.looks > 20
    assert sworn.watch.leaks == set()
    for word in (sworn.password, sworn.token, wrong):
        assert word not in sworn.said
        found = subprocess.run(
            ["grep", "-rlaF", "-e", word, str(sworn.person.folder)],
            capture_output=True,
            text=True,
            check=False,
        )
        assert found.stdout == ""
    assert into(lab_hosts, SEEK, f"{sworn.password}\n{sworn.token}\n") == ""
