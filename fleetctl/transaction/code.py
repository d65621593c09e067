"""Which code a service runs: what its own interpreter says about modules, process by process."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class CodeQuery:
    """Where would the processes of a unit import these modules from?

    Attributes:
        unit: the service; its live Python processes are asked for with their own interpreter,
            directory, environment and flags.
        modules: dotted names.
        files: paths that are no module's by name; the answer for each has the path for a name.
        interpreter: who is asked where no process of the unit runs.
        directory: where it is asked from then; also searched for readers of `names`.
        names: environment variables: which source files of the service mention them?
        variables: environment variables whose values in each process are wanted.
        libraries: packages: which of them has each process loaded?
    """

    unit: str
    modules: tuple[str, ...]
    interpreter: str
    directory: str
    names: tuple[str, ...] = ()
    variables: tuple[str, ...] = ()
    libraries: tuple[str, ...] = ()
    files: tuple[str, ...] = ()


@dataclass(frozen=True)
class ModuleSource:
    """Where one module comes from.

    Attributes:
        module: dotted name, or the path of a file that was asked for by its path.
        kind: source, bytecode, extension, builtin, namespace, missing or not-a-package.
        file: the file, where there is one.
        sha256: of that file.
        finder: the import finder that answered, such as `_frozen_importlib_external.PathFinder`.
        bytecode: none, unused, current or stale; empty where it doesn't apply.
        bytecode_file: where the cached bytecode is or would be.
        changed_s: when the file was last changed (ctime: no program can set it back).
        at: the part of the name at which the search ended, for missing and not-a-package.
        searched: the directories looked through; of a namespace package, those it is made of.
        shadow: directories of a namespace package on the way, which stands where a package
            with `__init__.py` was meant.
    """

    module: str
    kind: str
    file: str | None = None
    sha256: str | None = None
    finder: str = ""
    bytecode: str = ""
    bytecode_file: str | None = None
    changed_s: float | None = None
    at: str = ""
    searched: tuple[str, ...] = ()
    shadow: tuple[str, ...] = ()


@dataclass(frozen=True)
class ProcessCode:
    """What one process would import.

    Attributes:
        pid: 0 where nothing ran and the inventory's interpreter was asked.
        interpreter: program that was asked.
        prefix: its `sys.prefix`: the virtual environment.
        version: of Python.
        directory: where it was asked from.
        pycache_prefix: PYTHONPYCACHEPREFIX of the process; empty where it has none.
        main: what it runs: the module after `-m`, or the script's path; may be empty.
        started_s: when the process was started, wall clock of the host; 0 for pid 0.
        modules: one answer per module asked for.
        problem: why it could not be asked.
        variables: (name, value) of the environment variables asked for that it has.
        libraries: those of the packages asked for of which it has mapped a file.
        user: whose process it is.
        login: what it takes for its user's name, from its environment or the user database.
        home: its home directory, likewise.
        temp: its directory for temporary files.
    """

    pid: int
    interpreter: str
    prefix: str
    version: str
    directory: str
    pycache_prefix: str
    main: str
    started_s: float
    modules: tuple[ModuleSource, ...]
    problem: str = ""
    variables: tuple[tuple[str, str], ...] = ()
    libraries: tuple[str, ...] = ()
    user: str = ""
    login: str = ""
    home: str = ""
    temp: str = "/tmp"  # noqa: S108 - where Python looks first, nothing is written here


@dataclass(frozen=True)
class NameReaders:
    """Who reads an environment variable.

    Attributes:
        name: of the variable.
        files: source files that mention it, at most a few.
    """

    name: str
    files: tuple[str, ...]


@dataclass(frozen=True)
class CodeReport:
    """Every Python process of a unit, asked.

    Attributes:
        readers: one entry per name asked for, in order.
        searched: directories whose sources were looked through for them.
    """

    unit: str
    processes: tuple[ProcessCode, ...]
    readers: tuple[NameReaders, ...] = ()
    searched: tuple[str, ...] = ()
