"""The ways in which flags, patches and services have lied to somebody: each is named."""

from __future__ import annotations

import textwrap

import pytest

from fleetctl.errors import ExitCode

pytestmark = pytest.mark.lab

SCRIPT = "/srv/dsv4/serve_dsv4_decode.sh"
UNIT = "sglang-dsv4-decode.service"
FLAG = '[env]\nSGLANG_DSV4_GE_DIFF = "1"\n'
MINE = '[[patch]]\nsource = "payload/mine.py"\nmodule = "serve.dsv4.indexer"\n'
SERVER = '[[patch]]\nsource = "payload/server.py"\npath = "python/payload/engine/__main__.py"\n'


@pytest.fixture
def host(lab_hosts, person):
    """Lab-1, to be changed at will: its tree and its unit are put back afterwards."""
    lab_hosts.run("lab-1", "tar -C / -cpf /root/before.tar srv/dsv4 etc/systemd/system")
    yield lambda command: lab_hosts.run("lab-1", command)
    lab_hosts.run(
        "lab-1",
        f"systemctl stop {UNIT}; rm -rf /srv/dsv4 /srv/elsewhere /etc/systemd/system/{UNIT}.d; "
        "tar -C / -xpf /root/before.tar; rm /root/before.tar; "
        f"systemctl daemon-reload; systemctl reset-failed; systemctl start {UNIT}",
    )
    lab_hosts.wait_until_active("lab-1")


def edit(host, old: str, new: str) -> None:
    """Change the serve script as a colleague would have, and restart."""
    program = (
        f"import pathlib; p = pathlib.Path({SCRIPT!r}); s = p.read_text(); assert {old!r} in s; "
    )
    program += f"p.write_text(s.replace({old!r}, {new!r}))"
    host(f"python3 -c {shell_quoted(program)} && systemctl restart {UNIT}")


def shell_quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


def test_a_typo_in_a_flag_is_read_by_nobody_and_plan_says_so(person, untouched):
    done = person.run("plan", person.spec('[env]\nSGLANG_DSV4_GE_DIF = "1"\n'))

    assert done.returncode == ExitCode.OK, done.stderr
    assert "reads SGLANG_DSV4_GE_DIF" in done.stdout
    assert "reads SGLANG_DSV4_GE_DIF" in done.stderr


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("export SGLANG_DSV4_GE_DIFF=0\n", "#export SGLANG_DSV4_GE_DIFF=0\n"),
        ('cd "$TREE"\n', 'export SGLANG_DSV4_GE_DIFF=0\ncd "$TREE"\n'),
        ('cd "$TREE"\n', 'cd "$TREE"\n. ./site.sh\n'),
        ('exec "$PY"', 'SGLANG_DSV4_GE_DIFF=0 exec "$PY"'),
    ],
    ids=["commented", "later override", "sourced override", "prefix"],
)
def test_a_flag_really_arrives_whatever_the_script_does(person, host, old, new):
    host("echo export SGLANG_DSV4_GE_DIFF=0 > /srv/dsv4/site.sh")
    edit(host, old, new)

    done = person.run("run", person.spec(FLAG))

    if done.returncode == ExitCode.REFUSED:
        assert "SGLANG_DSV4_GE_DIFF" in done.stderr
        return
    shown = [event["shown"] for event in person.events() if event["kind"] == "deployed"]
    assert any('SGLANG_DSV4_GE_DIFF="1"' in line for lines in shown for line in lines), done.stderr


def test_a_flag_that_only_the_unit_sets_is_won_by_script_or_drop_in(person, host):
    edit(host, "export SGLANG_DSV4_GE_DIFF=0\n", "")
    host(
        f"mkdir -p /etc/systemd/system/{UNIT}.d && "
        f"printf '[Service]\\nEnvironment=SGLANG_DSV4_GE_DIFF=0\\n' "
        f"> /etc/systemd/system/{UNIT}.d/50-x.conf && "
        f"systemctl daemon-reload && systemctl restart {UNIT}"
    )

    explained = person.run("env", "lab-1", "SGLANG_DSV4_GE_DIFF")
    done = person.run("run", person.spec(FLAG))

    assert "50-x.conf:2" in explained.stdout
    shown = [event["shown"] for event in person.events() if event["kind"] == "deployed"]
    assert any('SGLANG_DSV4_GE_DIFF="1"' in line for lines in shown for line in lines), done.stderr


def test_a_flag_set_per_branch_is_refused_or_won_on_every_branch(person, host):
    branches = (
        "if [ -d /x ]; then export SGLANG_DSV4_GE_DIFF=0; else export SGLANG_DSV4_GE_DIFF=2; fi\n"
    )
    edit(host, "export SGLANG_DSV4_GE_DIFF=0\n", branches)

    explained = person.run("env", "lab-1", "SGLANG_DSV4_GE_DIFF")
    done = person.run("run", person.spec(FLAG))

    assert "per-branch" in explained.stdout
    if done.returncode != ExitCode.REFUSED:
        shown = [event["shown"] for event in person.events() if event["kind"] == "deployed"]
        assert any('SGLANG_DSV4_GE_DIFF="1"' in line for lines in shown for line in lines)


def test_another_virtual_environment_is_named(person, host, lab_hosts):
    host("ln -sfn $(readlink -f $(sed -n 's/^PY=//p' " + SCRIPT + ")) /srv/dsv4/python3")
    edit(host, "PY=", "PY=/srv/dsv4/python3 OLD=")
    person.payload("mine.py", 'NAME = "mine"\n')

    done = person.run("run", person.spec(MINE))

    assert done.returncode == ExitCode.REFUSED
    assert "another virtual environment" in done.stderr


def test_a_copy_of_the_package_in_the_working_directory_is_named(person, host):
    host("mkdir /srv/elsewhere && cp -a /srv/dsv4/python/serve /srv/elsewhere/")
    edit(host, 'cd "$TREE"', "cd /srv/elsewhere")
    person.payload("mine.py", 'NAME = "mine"\n')

    done = person.run("run", person.spec(MINE))

    assert done.returncode == ExitCode.REFUSED
    assert "/srv/elsewhere/serve/dsv4/indexer.py" in done.stderr
    assert "not from the tree" in done.stderr


def test_stale_bytecode_can_not_run(person, host):
    """Bytecode that never looks at its source lies ready; the new code runs all the same."""
    program = (
        "import py_compile; "
        "py_compile.compile('/srv/dsv4/python/serve/dsv4/indexer.py', "
        "invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)"
    )
    python = host(f"sed -n 's/^PY=//p' {SCRIPT}").strip()
    host(f"{python} -c {shell_quoted(program)}")
    source = person.payload("mine.py", 'NAME = "mine"\n')
    spec = person.spec(
        MINE.replace("payload/mine.py", source) + 'marker = "[variant] indexer=mine"\n'
    )

    done = person.run("run", spec)

    shown = [event["shown"] for event in person.events() if event["kind"] == "deployed"]
    assert any("indexer=mine" in line for lines in shown for line in lines), done.stderr


def server(person, body: str) -> None:
    """A server in the place of the stand-in; `body` sees its handler class `H`."""
    person.payload(
        "server.py",
        textwrap.dedent(
            """
            import http.server, json, os, sys, threading, time
            class H(http.server.BaseHTTPRequestHandler):
                TEXT = {"role": "assistant", "content": "A short sentence."}
                CHOICE = {"index": 0, "finish_reason": "stop", "message": TEXT}
                CHAT = (200, {"model": "dsv4-flash", "choices": [CHOICE]})
                def do_GET(self): self.answer(200, {"ok": True})
                def do_POST(self):
                    self.rfile.read(int(self.headers["Content-Length"])); self.answer(*self.CHAT)
                def answer(self, status, value):
                    data = json.dumps(value).encode()
                    self.send_response(status)
                    self.send_header("Content-Length", str(len(data)))
                    self.end_headers(); self.wfile.write(data)
                def log_message(self, *words): pass
            """
        )
        + textwrap.dedent(body)
        + '\nport = int(sys.argv[sys.argv.index("--port") + 1])\n'
        + 'http.server.ThreadingHTTPServer(("127.0.0.1", port), H).serve_forever()\n',
    )


def test_green_health_with_a_broken_completion_is_not_ready(person, untouched):
    server(person, 'H.CHAT = (200, {"model": "dsv4-flash", "choices": []})')

    done = person.run("run", person.spec(SERVER))

    assert done.returncode == ExitCode.FAILED_RESTORED
    assert "completion is unhealthy" in done.stderr
    assert "last layer passed: health" in done.stderr
    untouched()


def test_the_wrong_model_is_not_ready(person, untouched):
    server(person, 'H.CHAT[1]["model"] = "another-model"')

    done = person.run("run", person.spec(SERVER))

    assert done.returncode == ExitCode.FAILED_RESTORED
    assert "another-model" in done.stderr
    untouched()


def test_a_crash_at_second_three_is_a_loop_and_not_a_start(person, untouched):
    server(person, "threading.Timer(3, os._exit, [1]).start()")
    spec = person.spec(SERVER)
    spec.write_text(spec.read_text().replace('soak = "500ms"', 'soak = "5s"'))

    done = person.run("run", spec)

    assert done.returncode == ExitCode.FAILED_RESTORED, done.stderr
    assert "restart" in done.stderr
    untouched()


def test_a_restart_inside_a_trial_makes_it_invalid(person, untouched):
    server(person, "threading.Timer(4, os._exit, [1]).start()")

    done = person.run("run", person.spec(SERVER, trial_s=8.0))

    assert done.returncode in (ExitCode.INVALID, ExitCode.FAILED_RESTORED)
    if done.returncode == ExitCode.INVALID:
        assert "restart" in done.stdout
    untouched()


def test_a_marker_missing_in_one_of_several_workers_is_named(person, untouched):
    server(
        person,
        """
        if os.fork():
            print("[variant] mine", flush=True)
        else:
            time.sleep(600)
        """,
    )
    spec = person.spec(SERVER + 'marker = "[variant] mine"\n' + MINE)
    person.payload("mine.py", 'NAME = "mine"\n')
    text = spec.read_text().replace('target = "lab-1"', 'target = "lab-1"\nforced = ["confounded"]')
    spec.write_text(text)

    done = person.run("run", spec)

    assert done.returncode == ExitCode.FAILED_RESTORED, done.stderr
    assert "never logged the marker" in done.stderr
    untouched()


def test_an_orphan_of_a_wrapper_without_exec_is_named_before_the_start(person, host):
    drop_in = f"/etc/systemd/system/{UNIT}.d/50-x.conf"
    host(
        f"systemctl stop {UNIT}; mkdir -p /etc/systemd/system/{UNIT}.d; "
        f"printf '[Service]\\nKillMode=process\\n' > {drop_in}; systemctl daemon-reload"
    )
    edit(host, 'exec "$PY"', '"$PY"')
    spec = person.spec(FLAG)
    spec.write_text(spec.read_text().replace('soak = "500ms"', 'soak = "500ms"\nstop = "2s"'))

    done = person.run("run", spec)

    assert done.returncode == ExitCode.FAILED_RESTORED, done.stderr
    assert "processes left" in done.stderr
    planned = person.run("plan", spec).stdout
    assert "KillMode=process" in planned
    assert "without `exec` the serve script stands between" in planned


def test_gpu_memory_that_stays_after_the_stop_is_named_before_the_start(person, host):
    program = "/usr/local/bin/nvidia-smi"
    host(f"printf '#!/bin/sh\\necho 70000\\n' > {program}; chmod +x {program}")
    spec = person.spec(FLAG)
    more = 'soak = "500ms"\nstop = "2s"\ngpu_idle_mib = 500'
    spec.write_text(spec.read_text().replace('soak = "500ms"', more))

    done = person.run("run", spec)

    host(f"rm {program}")
    assert done.returncode == ExitCode.FAILED_RESTORED, done.stderr
    assert "GPU memory did not fall to 500 MiB within 2 s: 70000 MiB are in use" in done.stderr


def test_a_unit_in_a_crash_loop_is_refused_because_that_can_not_be_put_back(person, host):
    drop_in = f"/etc/systemd/system/{UNIT}.d/50-x.conf"  # each time it starts it is active, too
    host(
        f"mkdir -p /etc/systemd/system/{UNIT}.d; "
        f"printf '[Service]\\nRestartSec=600\\n' > {drop_in}; systemctl daemon-reload"
    )
    edit(host, 'exec "$PY"', 'exit 1; exec "$PY"')
    host(f"until systemctl show -p SubState {UNIT} | grep -q auto-restart; do sleep 0.05; done")

    done = person.run("run", person.spec(FLAG))

    assert done.returncode == ExitCode.REFUSED
    assert "no state that could be brought back" in done.stderr


def test_files_by_path_packages_without_init_and_removed_modules_are_proven(person, host):
    """The tree goes into a namespace package; the diff takes a module away."""
    host("mkdir /srv/dsv4/python/serve/extra; echo OLD = 1 > /srv/dsv4/python/serve/extra/old.py")
    person.payload("extra/new.py", "NEW = 1\n")
    person.payload("table.py", "TABLE = 1\n")
    removal = "--- a/serve/extra/old.py\n+++ /dev/null\n@@ -1 +0,0 @@\n-OLD = 1\n"
    person.payload("gone.diff", removal)
    spec = person.spec(
        '[[patch]]\nsource = "payload/extra/"\nmodule = "serve.extra"\n'
        '[[patch]]\nsource = "payload/table.py"\npath = "python/payload/table.py"\n'
        '[[patch]]\nsource = "payload/gone.diff"\nmodule = "serve"\n'
    )
    text = spec.read_text().replace('target = "lab-1"', 'target = "lab-1"\nforced = ["confounded"]')
    spec.write_text(text)

    done = person.run("run", spec)

    assert done.returncode in (ExitCode.OK, ExitCode.INVALID), done.stderr
    shown = {e["arm"]: "\n".join(e["shown"]) for e in person.events() if e["kind"] == "deployed"}
    assert "serve.extra.new is /srv/dsv4/python/serve/extra/new.py (sha256" in shown["treatment"]
    assert "serve.extra.old is absent for process" in shown["treatment"]
    assert "serve.extra.new is absent for process" in shown["control"]
    assert "serve.extra.old is /srv/dsv4/python/serve/extra/old.py" in shown["control"]
    table = "/srv/dsv4/python/payload/table.py"
    assert f"{table} (sha256" in shown["treatment"]
    assert f"{table} is absent for process" in shown["control"]
    names = {line["name"] for line in person.last_report()["differences"]}
    assert names == {"serve.extra", "serve", "python/payload/table.py"}
