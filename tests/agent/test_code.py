"""The service's own interpreter says where modules come from, without importing any."""

import importlib.util
import os
import py_compile
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fleetctl.agent import code as agent_code
from fleetctl.agent.code import report_code
from fleetctl.transaction.code import CodeQuery

WAIT = "import time, sys; print('up', flush=True); time.sleep(60)"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    package = tmp_path / "tree/serve/dsv4"
    package.mkdir(parents=True)
    (tmp_path / "tree/serve/__init__.py").write_text("raise SystemExit('imported')\n")
    (package / "__init__.py").write_text("")
    (package / "indexer.py").write_text("NAME = 'transient'\n")
    (tmp_path / "tree/wait.py").write_text(WAIT)
    return tmp_path / "tree"


@pytest.fixture
def start():
    running = []

    def begin(argv, cwd, env=None):
        process = subprocess.Popen(argv, cwd=cwd, env=env, stdout=subprocess.PIPE, text=True)
        assert process.stdout.readline() == "up\n"
        running.append(process)
        return process.pid

    yield begin
    for process in running:
        process.kill()
        process.stdout.close()
        process.wait()


def ask(pid: int, *modules: str):
    (code,) = report_code(CodeQuery("u", modules, "/nowhere/python", "/"), [pid]).processes
    assert code.problem == ""
    return code


def test_a_module_is_found_in_the_directory_the_process_runs_in_and_nothing_is_imported(
    tree, start
):
    pid = start([sys.executable, "-m", "wait"], tree)

    code = ask(pid, "serve.dsv4.indexer")

    assert code.modules[0].file == str(tree / "serve/dsv4/indexer.py")
    assert code.modules[0].kind == "source"
    assert abs(code.started_s - time.time()) < 30


@pytest.mark.parametrize("bare", ["serve/dsv4", "serve"])
def test_packages_without_an_init_are_searched_below_others_without_importing_any(
    tree, start, bare
):
    """Most of sglang's packages are bare directories below a package that must not be imported."""
    deep = tree / "serve/dsv4/deep"
    deep.mkdir()
    (deep / "kernel.py").write_text("x = 1\n")
    (tree / bare / "__init__.py").unlink()
    pid = start([sys.executable, "-m", "wait"], tree)

    code = ask(pid, "serve.dsv4.deep.kernel", "serve.dsv4.deep")

    assert code.modules[0].file == str(deep / "kernel.py")
    assert [found.kind for found in code.modules[:2]] == ["source", "namespace"]


def test_a_script_puts_its_own_directory_first_not_the_working_directory(tree, tmp_path, start):
    pid = start([sys.executable, str(tree / "wait.py")], tmp_path)

    assert ask(pid, "serve.dsv4.indexer").modules[0].file == str(tree / "serve/dsv4/indexer.py")


def test_pythonpath_of_the_process_counts_not_ours(tree, tmp_path, start):
    overlay = tmp_path / "overlay"
    shutil.copytree(tree / "serve", overlay / "serve")
    pid = start([sys.executable, "-P", "-c", WAIT], tmp_path, env={"PYTHONPATH": str(overlay)})

    assert ask(pid, "serve.dsv4.indexer").modules[0].file == str(overlay / "serve/dsv4/indexer.py")


def test_a_directory_that_shadows_a_package_is_named(tree, tmp_path, start):
    shadowing = tmp_path / "cwd"
    (shadowing / "serve").mkdir(parents=True)
    env = dict(os.environ, PYTHONPATH="")
    pid = start([sys.executable, "-c", WAIT], shadowing, env=env)

    (module,) = ask(pid, "serve.dsv4.indexer").modules

    assert module.kind == "missing"
    assert module.at == "serve.dsv4"
    assert module.shadow == (str(shadowing / "serve"),)


def test_the_interpreter_of_a_virtual_environment_is_not_taken_for_its_base(tree, tmp_path, start):
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True)
    python = tmp_path / "venv/bin/python"
    pid = start([str(python), "-m", "wait"], tree)

    code = ask(pid, "serve.dsv4.indexer")

    assert (code.interpreter, code.prefix) == (str(python), str(tmp_path / "venv"))


def test_a_process_whose_argv_leads_nowhere_is_asked_through_its_executable(tree, start):
    shell = f'exec -a sglang::scheduler {sys.executable} -c "{WAIT}"'
    pid = start(["bash", "-c", shell], tree, env=dict(os.environ, VIRTUAL_ENV=""))

    assert ask(pid, "serve.dsv4.indexer").modules[0].kind == "source"


def test_a_renamed_worker_is_asked_through_its_parent_s_virtual_environment(tree, tmp_path, start):
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True)
    python = tmp_path / "venv/bin/python"
    worker = (
        "import os, sys, time\n"
        "read, write = os.pipe()\n"
        "pid = os.fork()\n"
        "if not pid:\n"
        f"    os.execv({str(python)!r}, "
        "['sglang::scheduler', '-c', 'import time; time.sleep(60)'])\n"
        "time.sleep(0.5); print('up', flush=True); print(pid, flush=True); time.sleep(60)\n"
    )
    (tree / "parent.py").write_text(worker)
    parent = start([str(python), "-m", "parent"], tree)
    children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()

    code = ask(int(children[0]), "os")

    assert code.prefix == str(tmp_path / "venv")
    os.kill(int(children[0]), 9)


def test_a_module_changed_after_the_process_started_is_visible(tree, start):
    pid = start([sys.executable, "-m", "wait"], tree)
    (tree / "serve/dsv4/indexer.py").write_text("NAME = 'changed!!'\n")

    code = ask(pid, "serve.dsv4.indexer")

    assert code.modules[0].changed_s > code.started_s


def test_where_no_process_runs_the_inventory_s_interpreter_answers_as_pid_0(tree):
    query = CodeQuery("u", ("serve.dsv4.indexer",), sys.executable, str(tree))

    (code,) = report_code(query, []).processes

    assert code.pid == 0
    assert code.modules[0].file == str(tree / "serve/dsv4/indexer.py")


def test_an_interpreter_that_is_not_there_is_a_problem_in_words():
    (code,) = report_code(CodeQuery("u", ("os",), "/nowhere/python", "/"), []).processes

    assert "/nowhere/python could not be asked" in code.problem


def test_a_flag_that_no_source_reads_is_told_from_one_that_is_read(tree, start):
    (tree / "serve/dsv4/indexer.py").write_text("import os; os.getenv('SGLANG_DSV4_GE_DIFF')\n")
    pid = start([sys.executable, "-m", "wait"], tree)
    names = ("SGLANG_DSV4_GE_DIFF", "SGLANG_DSV4_GE_DIF")

    report = report_code(
        CodeQuery("u", ("serve.dsv4.indexer",), "/nowhere/python", "", names), [pid]
    )

    assert report.readers[0].files == (str(tree / "serve/dsv4/indexer.py"),)
    assert report.readers[1].files == ()
    assert report.searched == (str(tree / "serve"), str(tree / "wait.py"))


class TestBytecode:
    """Each way in which Python runs old bytecode is seen; fresh bytecode is not accused."""

    def state(self, tree, start, env=None):
        pid = start([sys.executable, "-m", "wait"], tree, env=env)
        return ask(pid, "serve.dsv4.indexer").modules[0]

    def test_none_and_current(self, tree, start):
        source = tree / "serve/dsv4/indexer.py"
        assert self.state(tree, start).bytecode == "none"
        py_compile.compile(str(source))
        assert self.state(tree, start).bytecode == "current"

    def test_same_size_and_same_second(self, tree, start):
        source = tree / "serve/dsv4/indexer.py"
        py_compile.compile(str(source))
        before = source.stat()
        source.write_text("NAME = 'permanent'\n")
        os.utime(source, (before.st_atime, before.st_mtime))

        assert self.state(tree, start).bytecode == "stale"

    def test_unchecked_hash(self, tree, start):
        source = tree / "serve/dsv4/indexer.py"
        mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
        py_compile.compile(str(source), invalidation_mode=mode)
        source.write_text("NAME = 'another one entirely'\n")

        assert self.state(tree, start).bytecode == "stale"

    def test_a_checked_hash_and_a_changed_mtime_make_the_interpreter_recompile(self, tree, start):
        source = tree / "serve/dsv4/indexer.py"
        mode = py_compile.PycInvalidationMode.CHECKED_HASH
        py_compile.compile(str(source), invalidation_mode=mode)
        source.write_text("NAME = 'x'\n")

        assert self.state(tree, start).bytecode == "unused"

    def test_bytecode_below_a_pycache_prefix(self, tree, tmp_path, start):
        source = tree / "serve/dsv4/indexer.py"
        env = dict(os.environ, PYTHONPYCACHEPREFIX=str(tmp_path / "cache"))
        subprocess.run([sys.executable, "-m", "py_compile", source], env=env, check=True)
        before = source.stat()
        source.write_text("NAME = 'permanent'\n")
        os.utime(source, (before.st_atime, before.st_mtime))

        module = self.state(tree, start, env=env)

        assert module.bytecode == "stale"
        assert module.bytecode_file.startswith(str(tmp_path / "cache"))

    def test_what_the_probe_calls_stale_is_what_the_interpreter_runs(self, tree):
        """The oracle: import it and look at the name."""
        (tree / "serve/__init__.py").write_text("")
        source = tree / "serve/dsv4/indexer.py"
        py_compile.compile(str(source), cfile=importlib.util.cache_from_source(str(source)))
        before = source.stat()
        source.write_text("NAME = 'permanent'\n")
        os.utime(source, (before.st_atime, before.st_mtime))
        script = "from serve.dsv4.indexer import NAME; print(NAME)"
        ran = subprocess.run(
            [sys.executable, "-c", script], cwd=tree, capture_output=True, text=True, check=True
        )

        assert ran.stdout == "transient\n"


def test_a_process_that_ends_while_its_interpreter_is_asked_is_no_bug(tree, start, monkeypatch):
    pid = start([sys.executable, "-m", "wait"], tree)
    ask_it = agent_code._Asker.ask

    def ask_the_dead(asker, modules, files):
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        return ask_it(asker, modules, files)

    monkeypatch.setattr(agent_code._Asker, "ask", ask_the_dead)

    query = CodeQuery("u", ("serve.dsv4.indexer",), "/nowhere/python", "/", libraries=("torch",))
    assert [process.pid for process in report_code(query, [pid]).processes] == [pid]
