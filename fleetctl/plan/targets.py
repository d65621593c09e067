"""Where a patch goes on a host: asked of the service's own interpreter, never guessed."""

from __future__ import annotations

from pathlib import PurePosixPath

from fleetctl.errors import DriftError
from fleetctl.spec.experiment import Patch
from fleetctl.spec.inventory import Host
from fleetctl.transaction.code import CodeReport, ModuleSource, ProcessCode

_PATH_FINDER = "_frozen_importlib_external.PathFinder"


def module_file(host_name: str, host: Host, module: str, code: CodeReport) -> str:
    """Return the file that every process of the service would import `module` from.

    Raises:
        DriftError: they disagree, or the module is not a source file inside the host's tree:
            a wrong copy, a shadowing directory, a second virtual environment.
    """
    files: dict[str, ProcessCode] = {}
    for process in code.processes:
        _check_interpreter(host_name, host, process)
        found = _find(process, module)
        if found.kind != "source" or found.file is None:
            raise _refuse(host_name, module, _explain(found))
        files[found.file] = process
    if len(files) != 1:
        places = ", ".join(f"{file} (process {files[file].pid})" for file in sorted(files))
        raise _refuse(host_name, module, f"the processes of the service disagree: {places}")
    (file,) = files
    if not is_below(file, host.tree):
        finder = _find(next(iter(files.values())), module).finder
        how = "" if finder == _PATH_FINDER else f", found by {finder}"
        raise _refuse(
            host_name, module, f"it is imported from {file}{how}, not from the tree {host.tree}"
        )
    return file


def patch_root(host_name: str, host: Host, patch: Patch, code: CodeReport) -> str:
    """Return the directory that the names inside a tree patch or a diff start from.

    With `path` it is that directory of the tree. With `module` a tree patch fills the package's
    own directory, and a diff starts where the top-level package lies, as `sglang/srt/…` does.

    Raises:
        DriftError: as for `module_file`; or a tree patch names a module that is no package.
    """
    if patch.path is not None:
        return str(PurePosixPath(host.tree) / patch.path)
    module = patch.module or ""
    for process in code.processes:
        _check_interpreter(host_name, host, process)
    if patch.kind == "tree" and all(_find(p, module).kind == "namespace" for p in code.processes):
        return _namespace_directory(host_name, host, module, code)
    file = PurePosixPath(module_file(host_name, host, module, code))
    package = file.parent if file.name == "__init__.py" else file
    if patch.kind == "tree":
        if package == file:
            raise _refuse(host_name, module, f"a tree needs a package, and {file} is a module")
        return str(package)
    for _ in range(module.count(".") + 1):
        package = package.parent
    return str(package)


def _namespace_directory(host_name: str, host: Host, module: str, code: CodeReport) -> str:
    """Return the only directory of a package without `__init__.py`."""
    places = sorted({place for p in code.processes for place in _find(p, module).searched})
    way_out = "say `path = …` to choose the directory, or add an `__init__.py`"
    if len(places) != 1:
        why = f"it is a namespace package made of {' and '.join(places)}; {way_out}"
        raise _refuse(host_name, module, why)
    if not is_below(places[0], host.tree):
        why = f"it is a namespace package in {places[0]}, not in the tree {host.tree}; {way_out}"
        raise _refuse(host_name, module, why)
    return places[0]


def is_below(path: str, directory: str) -> bool:
    """Whether a path lies inside a directory."""
    return PurePosixPath(directory) in PurePosixPath(path).parents


def pycache_prefix(code: CodeReport) -> str | None:
    """Return the PYTHONPYCACHEPREFIX of the service, where it has one."""
    return next((p.pycache_prefix for p in code.processes if p.pycache_prefix), None)


def _check_interpreter(host_name: str, host: Host, process: ProcessCode) -> None:
    if process.problem:
        raise DriftError(
            f"the interpreter of {host_name}'s service can't be asked",
            why=process.problem,
            next_step="check `python` and `tree` of this host in the inventory",
        )
    environment = PurePosixPath(host.python).parent.parent
    if process.pid and PurePosixPath(process.prefix) != environment:
        raise DriftError(
            f"{host_name} serves from another virtual environment",
            why=f"process {process.pid} runs {process.interpreter} (prefix {process.prefix}), "
            f"the inventory says {host.python}",
            next_step="mend `python` in the inventory, or the serve script",
        )


def _find(process: ProcessCode, module: str) -> ModuleSource:
    return next(found for found in process.modules if found.module == module)


def _explain(found: ModuleSource) -> str:
    shadow = "".join(
        f"; {directory} has no __init__.py and shadows the package"
        for directory in found.shadow[:1]
    )
    if found.kind == "missing":
        return f"`{found.at}` is not found in {', '.join(found.searched[:4]) or 'nowhere'}{shadow}"
    return f"it is of kind {found.kind} ({found.file or found.at}){shadow}"


def _refuse(host_name: str, module: str, why: str) -> DriftError:
    return DriftError(
        f"{host_name} does not import {module} where it should",
        why=why,
        next_step="ask the service's interpreter by hand, or mend `module` or the inventory",
    )
