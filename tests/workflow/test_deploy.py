"""What is read back of a deployed arm."""

from fleetctl.transaction.code import CodeReport, ModuleSource, ProcessCode
from fleetctl.workflow.deploy import live_digest


def report(**sources: str | None) -> CodeReport:
    found = tuple(
        ModuleSource(name, "source" if digest else "missing", sha256=digest)
        for name, digest in sources.items()
    )
    return CodeReport("u", (ProcessCode(1, "py", "/v", "3.11", "/", "", "m", 1.0, found),))


def test_one_module_is_known_by_the_digest_of_its_file():
    assert live_digest(report(a="1" * 64, b="2" * 64), ["a"]) == "1" * 64


def test_a_patch_of_several_modules_differs_as_soon_as_one_of_them_does():
    digests = {
        live_digest(report(a="1" * 64, b=b, c="3" * 64), ["a", "b"])
        for b in ("2" * 64, "4" * 64, None)
    }

    assert len(digests) == 3
