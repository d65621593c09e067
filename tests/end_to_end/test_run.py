"""`fleetctl run` on a real host: what it does, what it refuses, and how the host is left."""

import json

import pytest

from fleetctl.errors import ExitCode

pytestmark = pytest.mark.lab

PATCH = (
    '[[patch]]\nsource = "{}"\nmodule = "serve.dsv4.indexer"\nmarker = "[variant] indexer=mine"\n'
)
FLAG = '[env]\nSGLANG_DSV4_GE_DIFF = "1"\n'


def test_a_run_proves_measures_judges_and_leaves_every_byte_as_found(person, untouched, lab_hosts):
    source = person.payload("mine.py", 'NAME = "mine"\n')
    spec = person.spec(PATCH.format(source), runs=2)

    done = person.run("run", spec)

    assert done.returncode == ExitCode.INVALID, done.stderr  # the control never showed a fault
    kinds = [event["kind"] for event in person.events()]
    assert kinds.count("trial") == 4
    assert kinds[-2:] == ["restored", "finished"]
    shown = [event["shown"] for event in person.events() if event["kind"] == "deployed"]
    assert any('marker "[variant] indexer=mine"' in line for lines in shown for line in lines)
    untouched()


def test_flags_are_proven_in_the_process_and_gone_afterwards(person, untouched):
    done = person.run("run", person.spec(FLAG), "--expect", "invalid")

    assert done.returncode == ExitCode.OK  # what was expected, not what the verdict is
    assert "proven" in done.stderr
    shown = [event["shown"] for event in person.events() if event["kind"] == "deployed"]
    assert any('SGLANG_DSV4_GE_DIFF="1"' in line for lines in shown for line in lines)
    untouched()


def test_data_goes_to_stdout_and_talk_to_stderr_and_expect_decides_the_exit_code(person, untouched):
    done = person.run("run", person.spec(FLAG), "--json", "--expect", "reduced")

    assert json.loads(done.stdout)["verdict"] == "invalid"
    assert done.returncode == ExitCode.UNEXPECTED_VERDICT
    untouched()


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ('[env]\n"BAD-NAME" = "1"\n', "can't be the name of an environment variable"),
        ("[trails]\n", "did you mean `trials`"),
        (
            '[[patch]]\nsource = "payload/absent.py"\nmodule = "serve.dsv4.indexer"\n',
            "missing file",
        ),
        ('[[patch]]\nsource = "payload/ok.py"\nmodule = "serve.dsv4.idx"\n', "does not import"),
        ('[env]\nPATH = "/nowhere"\nSGLANG_X = "1"\n', "more than one thing"),
    ],
)
def test_a_mistake_in_the_spec_is_one_clear_error_and_touches_nothing(
    person, untouched, body, says
):
    person.payload("ok.py", 'NAME = "ok"\n')

    done = person.run("run", person.spec(body))

    assert done.returncode == ExitCode.REFUSED
    assert says in done.stderr
    assert done.stderr.count("error:") == 1
    assert "hint:" in done.stderr
    assert "Traceback" not in done.stderr
    untouched()


def test_payload_that_does_not_compile_is_refused_before_any_connection(person, untouched):
    source = person.payload("broken.py", "def f(:\n")

    done = person.run("run", person.spec(PATCH.format(source)))

    assert done.returncode == ExitCode.REFUSED
    assert "broken.py:1" in done.stderr
    untouched()


def test_a_unit_that_does_not_exist_is_refused(person, untouched):
    inventory = person.folder / "inventory.toml"
    text = person.inventory.read_text().replace("sglang-dsv4-decode.service", "sglang-typo.service")
    inventory.write_text(text)

    done = person.run("run", person.spec(FLAG), "--inventory", inventory)

    assert done.returncode == ExitCode.REFUSED
    assert "sglang-typo.service" in done.stderr
    untouched()


def test_a_dead_host_is_one_clear_error(person):
    inventory = person.folder / "inventory.toml"
    text = person.inventory.read_text().replace(
        "port = 22\n", 'port = 1\nconnect_deadline = "3s"\n'
    )
    inventory.write_text(text)

    done = person.run("run", person.spec(FLAG), "--inventory", inventory)

    assert done.returncode == ExitCode.REFUSED
    assert "lab-1" in done.stderr
    assert done.stderr.count("error:") == 1


def test_a_wrong_host_key_is_refused_and_names_the_file(person):
    known = person.folder / "known_hosts"
    lab_known = person.inventory.parent / "known_hosts"
    own, other = lab_known.read_text().splitlines()[:2]
    known.write_text(f"{own.split()[0]} {' '.join(other.split()[1:])}\n")
    inventory = person.folder / "inventory.toml"
    inventory.write_text(person.inventory.read_text().replace(str(lab_known), str(known)))

    done = person.run("run", person.spec(FLAG), "--inventory", inventory)

    assert done.returncode == ExitCode.REFUSED
    assert str(known) in done.stderr


def test_a_service_that_dies_at_import_is_restored_with_its_last_words(person, untouched):
    source = person.payload("dies.py", 'NAME = "mine"\nraise RuntimeError("no such kernel")\n')

    done = person.run("run", person.spec(PATCH.format(source)))

    assert done.returncode == ExitCode.FAILED_RESTORED
    assert "no such kernel" in done.stderr
    untouched()


def test_a_port_that_never_opens_is_restored_and_says_how_far_it_came(person, untouched):
    source = person.payload("hangs.py", 'NAME = "mine"\nimport time\ntime.sleep(600)\n')

    done = person.run("run", person.spec(PATCH.format(source)))

    assert done.returncode == ExitCode.FAILED_RESTORED
    assert "port is unreachable" in done.stderr
    assert "last layer passed: unit" in done.stderr
    untouched()


def test_a_marker_that_never_appears_is_not_proven(person, untouched):
    source = person.payload("mine.py", 'NAME = "other"\n')

    done = person.run("run", person.spec(PATCH.format(source)))

    assert done.returncode == ExitCode.FAILED_RESTORED
    assert "no process logged the marker" in done.stderr
    untouched()
