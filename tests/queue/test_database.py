"""Addresses without passwords, refusals told at once, and content that is what it promises."""

from __future__ import annotations

import subprocess
import sys
import uuid

import pytest

from fleetctl.clock import SystemClock
from fleetctl.errors import InputError, QueueError
from fleetctl.queue.address import parse_address
from fleetctl.queue.content import Content
from fleetctl.queue.database import Database


@pytest.fixture
def database(url):
    with Database(parse_address(url), SystemClock(), "test") as made:
        made.set_up()
        yield made


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("postgresql://me:hunter2@db/fleet", "a password is in"),
        ("postgresql://me@db/fleet?password=hunter2", "a password is in"),
        ("mysql://me:hunter2@db/fleet", "not in mysql"),
        ("hunter2", "not in a file"),
        ("postgresql://me@db", "names no database"),
        ("postgresql://[me/fleet", "can't be read"),
    ],
)
def test_an_address_that_is_none_or_holds_a_password_is_refused_without_repeating_it(text, says):
    with pytest.raises(InputError) as refused:
        parse_address(text)

    told = f"{refused.value} {refused.value.next_step}"
    assert says in told
    assert "hunter2" not in told


def test_the_engine_gets_the_same_address_with_its_driver():
    address = parse_address("postgresql:///fleet?host=/run/postgresql")

    assert str(address) == "postgresql:///fleet?host=/run/postgresql"
    assert address.for_engine == "postgresql+psycopg:///fleet?host=/run/postgresql"


def test_a_server_that_says_no_is_not_asked_again(server, url, tmp_path, monkeypatch):
    absent = parse_address(server.url("absent"))
    with pytest.raises(QueueError, match="does not exist"):
        Database(absent, SystemClock(), "test").set_up()
    wrong = tmp_path / "pgpass"
    wrong.write_text("*:*:*:fleet:wrong\n")
    wrong.chmod(0o600)
    monkeypatch.setenv("PGPASSFILE", str(wrong))
    with pytest.raises(QueueError, match="authentication failed"):
        Database(parse_address(url), SystemClock(), "test").set_up()


def test_a_server_that_is_away_is_waited_for_and_not_for_ever():
    said: list[str] = []
    nobody = parse_address("postgresql://me@127.0.0.1:1/fleet")

    with pytest.raises(QueueError, match="can't be used"):
        Database(nobody, SystemClock(), "test", patience_s=0.3, on_wait=said.append).set_up()

    assert len(said) == 1
    assert "waiting for the queue's database" in said[0]


def test_tables_of_another_version_are_refused(server):
    with Database(parse_address(server.new_database()), SystemClock(), "test") as other:
        other.set_up()
        other.run(lambda cursor: cursor.execute("UPDATE fleetctl.version SET version = 99"))

        with pytest.raises(QueueError, match="another version"):
            other.set_up()


def test_content_comes_back_as_it_was_and_nothing_else_passes_for_it(database):
    content, owner = Content(database), uuid.uuid4().hex
    content.attach(owner, {"a": b"one\0", "b": b"one\0", "c": b""})

    files = content.files(owner)
    assert {path: content.bytes_of(file, path) for path, file in files.items()} == {
        "a": b"one\0",
        "b": b"one\0",
        "c": b"",
    }
    change = "UPDATE fleetctl.content SET bytes = 'two' WHERE sha256 = %s"
    database.run(lambda cursor: cursor.execute(change, [files["a"].sha256]))
    with pytest.raises(QueueError, match="bytes were changed"):
        content.bytes_of(files["b"], "b")


def test_what_was_attached_first_stays_where_that_is_wanted(database):
    content, owner = Content(database), uuid.uuid4().hex

    content.attach(owner, {"calibration": b"1.3"}, only_first=True)
    content.attach(owner, {"calibration": b"1.4"}, only_first=True)

    file = content.files(owner)["calibration"]
    assert content.bytes_of(file, "calibration") == b"1.3"


def test_without_the_extra_the_command_says_what_to_install(tmp_path):
    program = (
        "import sys; sys.modules['psycopg'] = None\n"
        "from fleetctl.cli.app import main\n"
        "sys.argv = ['fleetctl', 'worker', '--queue', 'postgresql://me@db/fleet',"
        " '--inventory', 'inventory/example.toml']\n"
        "main()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False
    )

    assert done.returncode == 3, done.stderr
    assert "pip install 'fleetctl[queue]'" in done.stderr
