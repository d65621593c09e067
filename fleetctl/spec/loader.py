"""TOML files -> frozen values; every error says file, line, key, and what was expected."""

from __future__ import annotations

import codecs
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args, get_origin

import tomli
from pydantic import BaseModel, ValidationError

from fleetctl.errors import InputError
from fleetctl.spec.bisect import Bisect, Minimize
from fleetctl.spec.experiment import Experiment
from fleetctl.spec.inventory import Inventory
from fleetctl.spec.kinds import Kind, refuse_other_kind
from fleetctl.spec.limits import shortened
from fleetctl.spec.located import line_of
from fleetctl.spec.matrix import Matrix
from fleetctl.spec.nearest import nearest
from fleetctl.spec.quoted import quoted
from fleetctl.spec.value import Value
from fleetctl.spec.wrong_value import in_words, of_unknown_kind

M = TypeVar("M", bound=Value)
_MAX_DEPTH = 32


def load_experiment(path: Path) -> Experiment:
    """Return the experiment in a TOML file.

    Raises:
        InputError: the file is missing, is not TOML, or says something that can't be.
    """
    return _load(path, Experiment, Kind.EXPERIMENT)


def load_matrix(path: Path) -> Matrix:
    """Return the matrix in a TOML file.

    Raises:
        InputError: as for `load_experiment`.
    """
    return _load(path, Matrix, Kind.MATRIX)


def load_bisect(path: Path) -> Bisect:
    """Return the bisection in a TOML file.

    Raises:
        InputError: as for `load_experiment`.
    """
    return _load(path, Bisect, Kind.BISECTION)


def load_minimize(path: Path) -> Minimize:
    """Return the minimisation in a TOML file.

    Raises:
        InputError: as for `load_experiment`.
    """
    return _load(path, Minimize, Kind.MINIMISATION)


def load_inventory(path: Path) -> Inventory:
    """Return the inventory in a TOML file; `[defaults]` is filled into each host.

    Relative paths of keys and known_hosts files start at the inventory's own folder.

    Raises:
        InputError: as for `load_experiment`.
    """
    text, document = _read(path)
    refuse_other_kind(path, document, Kind.INVENTORY)
    written = dict(document)
    defaults = document.pop("defaults", {})
    if not isinstance(defaults, dict):
        raise InputError(
            f"{path} can't be used",
            why="`defaults` is no table: it holds keys of a host that all hosts share",
            next_step="write [defaults], and its keys below it",
        )
    hosts = document.get("hosts")
    if isinstance(hosts, dict):
        document["hosts"] = {
            name: {**defaults, **host} if isinstance(host, dict) else host
            for name, host in hosts.items()
        }
    inventory = _validated(path, text, document, Inventory, written)
    base = path.resolve().parent
    return inventory.model_copy(
        update={
            "hosts": {
                name: host.model_copy(
                    update={
                        key: str(base / Path(value).expanduser())
                        for key in ("identity", "known_hosts", "ssh_config")
                        if (value := getattr(host, key)) is not None
                    }
                )
                for name, host in inventory.hosts.items()
            }
        }
    )


def _load(path: Path, model: type[M], kind: Kind) -> M:
    text, document = _read(path)
    refuse_other_kind(path, document, kind)
    return _validated(path, text, document, model)


def _read(path: Path) -> tuple[str, dict[str, Any]]:
    try:
        text = path.read_text(encoding="utf-8")
        document = tomli.loads(text)
    except OSError as error:
        raise InputError(
            f"can't read {path}", why=str(error.strerror), next_step="check the path"
        ) from error
    except UnicodeDecodeError as error:
        byte = error.object[error.start]
        raise InputError(
            f"{path} is not valid TOML",
            why=f"it is no UTF-8 text: its byte {error.start + 1} is 0x{byte:02x}",
            next_step="name a TOML file, or save it as UTF-8",
        ) from error
    except tomli.TOMLDecodeError as error:
        if path.read_bytes().startswith(codecs.BOM_UTF8):
            raise InputError(
                f"{path} is not valid TOML",
                why="it begins with a byte order mark, which some editors write before line 1",
                next_step="save it as UTF-8 without a byte order mark",
            ) from error
        raise InputError(
            f"{path} is not valid TOML", why=str(error), next_step="mend the line named above"
        ) from error
    except ValueError as error:  # Python's own, of a number that TOML's grammar allows
        raise InputError(
            f"{path} can't be used",
            why="a whole number in it has thousands of digits; no key takes one",
            next_step="look for the longest line",
        ) from error
    except RecursionError:
        raise _too_deep(path) from None
    if _is_deep(document):
        raise _too_deep(path)
    return text, document


def _is_deep(document: object) -> bool:
    """Whether something nests deeper than any spec does; never recurses itself."""
    level = [document]
    for _ in range(_MAX_DEPTH):
        inner = (_children(value) for value in level)
        level = [child for children in inner for child in children]
    return bool(level)


def _children(value: object) -> Iterable[object]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def _too_deep(path: Path) -> InputError:
    return InputError(
        f"{path} can't be used",
        why=f"something in it nests more than {_MAX_DEPTH} arrays or tables deep; no key does",
        next_step="look for a long dotted key, or for brackets that are never closed",
    )


def _validated(
    path: Path,
    text: str,
    document: dict[str, Any],
    model: type[M],
    written: dict[str, Any] | None = None,
) -> M:
    """Return the document as a value; `written` is the file before its defaults were filled in."""
    try:
        return model.model_validate(_frozen(document))
    except ValidationError as error:
        found: dict[tuple[str | int, ...], list[str]] = {}
        for raw in error.errors():
            location = _written(document, raw["loc"], keep_last=raw["type"] == "missing")
            message = _message(model, location, dict(raw))
            if written is not None and _from_defaults(written, location):
                place = ("defaults", *location[2:])
                message = message.replace(_dotted(location), _dotted(place))
                location = place
            found.setdefault(location, []).append(message)
        problems = [_located(path, text, *item) for item in found.items()]
        page = "inventory" if issubclass(model, Inventory) else "spec"
        raise InputError(
            f"{path} can't be used",
            why="\n       ".join(problems),
            next_step=f"mend the file; docs/reference/{page}.md lists every key",
        ) from error


def _from_defaults(written: Mapping[str, Any], location: Sequence[str | int]) -> bool:
    """Whether a host's key stands in `[defaults]` and not with the host."""
    if len(location) < 3 or location[0] != "hosts":
        return False
    host, key = written["hosts"][location[1]], location[2]
    return key in written.get("defaults", {}) and key not in host


def _dotted(location: Sequence[str | int]) -> str:
    return ".".join(shortened(str(part)) for part in location)


def _written(
    document: object, location: Sequence[str | int], *, keep_last: bool
) -> tuple[str | int, ...]:
    """Return the part of pydantic's location that stands in the file, without its union tags."""
    kept: list[str | int] = []
    for position, part in enumerate(location):
        inner = _inner(document, part)
        if inner is not None:
            document = inner
        elif not (keep_last and position == len(location) - 1):
            continue
        kept.append(part)
    return tuple(kept)


def _inner(document: object, part: str | int) -> object:
    if isinstance(document, dict):
        return document.get(part)
    if isinstance(document, list) and isinstance(part, int) and part < len(document):
        return document[part]
    return None


def _frozen(value: object) -> object:
    """Return TOML's lists as tuples, which is what strict frozen models hold."""
    if isinstance(value, Mapping):
        return {key: _frozen(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return tuple(_frozen(inner) for inner in value)
    return value


def _located(path: Path, text: str, location: Sequence[str | int], messages: list[str]) -> str:
    line = line_of(text, location)
    where = f"{path.name}:{line}" if line else path.name
    return f"{where}: {' or '.join(dict.fromkeys(messages))}"


def _message(model: type[BaseModel], location: Sequence[str | int], raw: Mapping[str, Any]) -> str:
    key = _dotted(location)
    if raw["type"] == "extra_forbidden":
        return _unknown(model, location, raw["input"])
    if raw["type"] in ("missing", "union_tag_not_found"):
        return _missing(model, location, raw)
    if location[-2:-1] == ("env",) and raw["type"] in ("string_type", "literal_error"):
        return f"`{key}` {_unquoted(raw['input'])}"
    if said := of_unknown_kind(key, raw):
        return said
    table = ".".join(part for part in location if isinstance(part, str))
    if said := in_words(table, raw):
        return f"`{key}` {said}"
    message = str(raw["msg"]).removeprefix("Value error, ")
    message = message[0].lower() + message[1:]
    return f"`{key}`: {message}" if key else message


def _missing(model: type[BaseModel], location: Sequence[str | int], raw: Mapping[str, Any]) -> str:
    """Return which key is missing, and what may stand there where that is one of a few."""
    # a table whose kind is not said lacks the key that says it
    tag = raw.get("ctx", {}).get("discriminator", "").strip("'")
    place = (*location, tag) if tag else tuple(location)
    around = _models_around(model, place)
    fields = [m.model_fields[str(place[-1])] for m in around if str(place[-1]) in m.model_fields]
    choices = dict.fromkeys(word for field in fields for word in _literals(field.annotation))
    told = f": it is {' or '.join(map(quoted, choices))}" if choices else ""
    return f"`{_dotted(place)}` is missing{told}"


def _literals(annotation: object) -> list[str]:
    """Return the texts that a key may be; none for a key that takes more than a few."""
    if get_origin(annotation) is Literal:
        return [word for word in get_args(annotation) if isinstance(word, str)]
    return [word for inner in get_args(annotation) for word in _literals(inner)]


def _unknown(model: type[BaseModel], location: Sequence[str | int], value: object) -> str:
    key, last = _dotted(location), str(location[-1])
    known = _valid_keys(model, location)
    if last in known:
        return f"`{key}` is a key of another kind of `{location[-2]}`"
    near = _home(model, last, value) or nearest(last, known)
    if near or len(location) == 1 or last not in model.model_fields:
        return f"unknown key `{key}`{near}"
    if isinstance(value, Mapping | list | tuple):
        return f"unknown key `{key}`; `{last}` is a table of its own, [{last}]"
    return f"unknown key `{key}`; `{last}` belongs at the top of the file, above every [table]"


def _home(model: type[BaseModel], last: str, value: object) -> str:
    """Return which table takes a key that was written elsewhere, if there is just one.

    Of a table that nobody knows the keys are looked for, as of a `[verdict]` that says the metric
    where a `[minimize]` does.
    """
    if last in model.model_fields:
        return ""
    if isinstance(value, Mapping):
        return nearest(last, model.model_fields) or _home_of_all(model, value)
    return _home_of_all(model, (last,))


def _home_of_all(model: type[BaseModel], keys: Collection[str]) -> str:
    homes = {
        name
        for name, field in model.model_fields.items()
        for inner in _models_in(field.annotation)
        if keys and set(keys) <= set(inner.model_fields)
    }
    home = homes.pop() if len(homes) == 1 else ""
    # a list of tables has no one place for the key
    if not home or not isinstance(model.model_fields[home].annotation, type):
        return ""
    named = [f"`{key}`" for key in keys]
    return f"; {' and '.join(named)} belong{'s' if len(named) == 1 else ''} in [{home}]"


def _unquoted(value: object) -> str:
    """Return what is wrong with the value of a flag that is no text."""
    if value is True:
        return 'is true: write the text that the service reads, such as "1" or "true", in quotes'
    if isinstance(value, int | float):
        return f'is a number, and flags are texts: write it in quotes, "{shortened(str(value))}"'
    return "is no text: write it in quotes, or false to unset it"


def _valid_keys(model: type[BaseModel], location: Sequence[str | int]) -> list[str]:
    """Return the keys that the models around `location` know."""
    return sorted({key for known in _models_around(model, location) for key in known.model_fields})


def _models_around(model: type[BaseModel], location: Sequence[str | int]) -> list[type[BaseModel]]:
    """Return what the table that holds the last part of `location` may be."""
    models: list[type[BaseModel]] = [model]
    for part in location[:-1]:
        inner = [
            _models_in(m.model_fields[part].annotation) for m in models if part in m.model_fields
        ]
        models = [m for group in inner for m in group] or models
    return models


def _models_in(annotation: object) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    inner: Sequence[object] = getattr(annotation, "__args__", ())
    return [model for argument in inner for model in _models_in(argument)]
