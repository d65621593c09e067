"""sudo's password is asked for once, and programs that we start do not inherit it."""

import os
import subprocess

import pytest

from fleetctl.cli.passwords import SudoPasswords
from fleetctl.errors import InputError
from fleetctl.spec.inventory import Sudo

NAME = "FLEET_TEST_PASSWORD"


@pytest.fixture
def passwords(monkeypatch):
    monkeypatch.setenv(NAME, "s3cret-canary")
    with SudoPasswords("ann") as made:
        yield made


def test_a_password_in_the_environment_is_not_inherited_and_is_back_at_the_end(monkeypatch):
    monkeypatch.setenv(NAME, "s3cret-canary")
    with SudoPasswords("ann") as passwords:
        password = passwords.of(Sudo(password_env=NAME))
        inherited = subprocess.run(["env"], capture_output=True, text=True, check=True).stdout

        assert password.reveal() == "s3cret-canary"
        assert "s3cret-canary" not in inherited
    assert os.environ[NAME] == "s3cret-canary"


def test_hosts_that_share_a_password_are_all_given_it(passwords):
    assert {passwords.of(Sudo(password_env=NAME)).reveal() for _ in range(3)} == {"s3cret-canary"}


def test_a_sudo_that_asks_for_none_has_none(passwords):
    assert passwords.of(Sudo()) is None


def test_a_password_that_is_not_there_is_named(passwords):
    with pytest.raises(InputError, match="no FLEET_OTHER") as missing:
        passwords.of(Sudo(password_env="FLEET_OTHER"))
    assert "export FLEET_OTHER" in missing.value.next_step
