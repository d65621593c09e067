"""A start that cannot be is refused in one line that names the option, whatever it says."""

import errno
import logging
import socket

import pytest

from payload.engine.__main__ import DrainingServer, main
from payload.engine.listen import bind

CAPTURED = "payload.runner.captured"
HUGE = 10**9
BEYOND_64_BITS = 64 * 10**24
DEPTH = ("--depth", "4")


@pytest.fixture
def refused(caplog):
    """Return what a start with these options is refused with."""

    def start(*options):
        with caplog.at_level(logging.INFO, "payload.engine"):
            assert main(["--port", "0", *options]) == 2
        said = caplog.records[-1]
        assert said.exc_info is None
        assert "\n" not in said.getMessage()
        return said.getMessage()

    return start


@pytest.mark.parametrize("value", [HUGE, BEYOND_64_BITS])
@pytest.mark.parametrize("name", ["context_tokens", "max_batch", "cache_pages", "typical_tokens"])
def test_a_size_for_which_there_is_no_memory_is_refused_by_name(refused, name, value):
    option = f"--{name.replace('_', '-')}"
    said = refused(option, str(value))

    assert said.startswith(f"cannot start: {name} is too large: the engine would take at least")
    assert said.endswith(f"are free; lower {option}")


@pytest.mark.parametrize("value", [HUGE, BEYOND_64_BITS])
def test_more_layers_than_fit_are_refused(refused, value):
    assert refused("--depth", str(value)).endswith("are free; lower --depth")


def test_a_batch_that_a_graph_has_no_memory_for_is_refused(refused):
    sizes = ("--max-batch", "600", "--context-tokens", "131072", "--cache-pages", "2")
    said = refused(*sizes, *DEPTH, "--runner", CAPTURED)

    assert said.startswith("cannot start: out of memory: ")
    assert said.endswith("lower --max-batch, --context-tokens or --cache-pages")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--max-batch", "0"), "max_batch must be at least 1: 0"),
        (("--max-batch", "-1"), "max_batch must be at least 1: -1"),
        (("--cache-pages", "1"), "cache_pages must be at least 2: 1"),
        (("--context-tokens", "0"), "context_tokens must be a multiple of 64: 0"),
        (("--typical-tokens", "-5"), "typical_tokens must be at least 1: -5"),
        (("--depth", "-1"), "depth must be at least 0: -1"),
        (("--depth", "1"), "depth must be 0 (balance them) or at least 2: 1"),
        (("--host", ""), "--host is empty: 0.0.0.0 means all addresses"),
        (("--host", "nowhere.invalid"), "--host takes an address of this machine"),
        (("--host", "a" * 70), "is no name of a host"),
        (("--host", "192.0.2.1"), "--host takes an address of this machine"),
    ],
)
def test_a_value_that_cannot_be_is_refused(refused, options, message):
    assert message in refused(*options)


@pytest.mark.parametrize("option", ["--port", "--max-batch", "--cache-pages", "--context-tokens"])
@pytest.mark.parametrize("value", ["", "many", "1e3", "nan", "0x10", "9" * 5000])
def test_what_is_no_number_is_refused_with_the_option(capsys, option, value):
    with pytest.raises(SystemExit) as ended:
        main([option, value])

    assert ended.value.code == 2
    assert f"argument {option}: invalid" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--port", "-1"),
        ("--port", "65536"),
        ("--port", "1000000000"),
        ("--served-model-name", " "),
        ("--served-model-name", "\udcff"),
    ],
)
def test_what_nobody_could_ask_for_is_refused_with_the_option(capsys, option, value):
    with pytest.raises(SystemExit) as ended:
        main([option, value])

    assert ended.value.code == 2
    assert f"argument {option}: must be" in capsys.readouterr().err


def test_a_port_in_use_is_found_before_the_engine_is_built(refused):
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        said = refused("--port", str(port), "--indexer", "not.even.looked.at")

    assert f"port {port} of 127.0.0.1 is in use: `ss -ltnp 'sport = :{port}'` names who" in said


def test_a_port_that_is_lost_while_the_engine_is_built_is_told_in_one_line(refused, monkeypatch):
    def run(_server, _listeners):
        raise OSError(errno.EADDRINUSE, "Address already in use")

    monkeypatch.setattr(DrainingServer, "run", run)
    said = refused("--max-batch", "1", "--cache-pages", "65", *DEPTH)

    assert "of 127.0.0.1 is in use" in said


def test_a_name_is_bound_at_all_its_addresses():
    bound = bind("localhost", 0)
    try:
        assert {one.getsockname()[0] for one in bound} <= {"127.0.0.1", "::1"}
        assert bound
    finally:
        for one in bound:
            one.close()


@pytest.mark.parametrize("family", ["indexer", "runner", "cache"])
@pytest.mark.parametrize(
    ("module", "message"),
    [
        ("", "cannot be imported: ValueError: Empty module name"),
        (".relative", "cannot be imported: TypeError"),
        ("payload..x", "No module named 'payload.'"),
        ("payload/runner/captured.py", "No module named 'payload/runner/captured'"),
        ("serve.dsv4.nothing", "No module named 'serve'"),
        ("json", "json is no {family} variant: it needs NAME and build"),
    ],
)
def test_what_is_no_module_of_a_variant_is_refused_with_the_option(
    refused, family, module, message
):
    said = refused(f"--{family}", module, *DEPTH)

    assert message.format(family=family) in said
    assert f"; --{family} takes a module's name, such as payload.{family}." in said


@pytest.mark.parametrize(
    ("family", "module"),
    [
        ("indexer", "payload.runner.captured"),
        ("indexer", "payload.cache.bf16"),
        ("runner", "payload.indexer.transient"),
        ("runner", "payload.cache.fp8"),
        ("cache", "payload.indexer.eager"),
        ("cache", "payload.runner.eager"),
    ],
)
def test_a_variant_of_another_family_is_refused(refused, family, module):
    said = refused(f"--{family}", module, "--cache-pages", "64", "--max-batch", "1", *DEPTH)

    assert f"cannot start: {module} " in said
    assert f"; --{family} takes a module's name" in said


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (b"def build(:\n", "SyntaxError: invalid syntax (broken_0.py, line 1)"),
        (b"\xff\xfe\x00", "SyntaxError"),
        (b"NAME = 'x'\nNAME.nothing\n", "AttributeError: 'str' object has no attribute 'nothing'"),
        (b"import payload.nothing\n", "ModuleNotFoundError: No module named 'payload.nothing'"),
        (None, "OSError: [Errno 5] Input/output error"),
    ],
)
def test_a_patched_module_that_fails_says_where(refused, tmp_path, monkeypatch, source, message):
    module = "broken_0"
    monkeypatch.syspath_prepend(tmp_path)
    file = tmp_path / f"{module}.py"
    if source is None:
        file.symlink_to("/proc/self/mem")  # root may read everything, but not this
    else:
        file.write_bytes(source)

    said = refused("--indexer", module)

    assert message in said
    assert module in said
