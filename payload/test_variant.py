"""Variants are found by name, say which they are, and differ in few lines."""

import hashlib
import sys
from pathlib import Path

import pytest

from payload.variant import FAMILIES, UnknownVariantError, diff, load, lookup, main

ALL = [(family, name) for family, names in FAMILIES.items() for name in names]


@pytest.mark.parametrize(("family", "name"), ALL)
def test_every_variant_says_its_name_and_the_hash_of_its_own_source(family, name):
    loaded = load(family, f"payload.{family}.{name}")

    source = Path(loaded.file).read_bytes()
    digest = hashlib.sha256(source).hexdigest()
    assert loaded.name == name
    assert loaded.sha256 == digest
    assert loaded.marker.startswith(f"[variant] {family}={name} sha256={digest[:12]} ")


@pytest.mark.parametrize(("family", "name"), ALL)
def test_a_copy_in_another_package_is_the_same_variant(family, name, tmp_path, monkeypatch):
    """As patches deploy them: the bytes of the file under another module name."""
    source = Path(load(family, f"payload.{family}.{name}").file).read_bytes()
    package = tmp_path / f"slots_{family}_{name}"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "slot.py").write_bytes(source)
    monkeypatch.syspath_prepend(str(tmp_path))

    loaded = load(family, f"{package.name}.slot")

    assert (loaded.name, loaded.sha256) == (name, hashlib.sha256(source).hexdigest())
    assert loaded.file == str(package / "slot.py")


@pytest.mark.parametrize("family", FAMILIES)
def test_two_variants_of_a_family_differ_visibly_but_little(family):
    first, *others = FAMILIES[family]

    for other in others:
        text = diff(family, first, other)
        assert f'-NAME = "{first}"' in text
        assert f'+NAME = "{other}"' in text


def test_the_diff_of_the_story_is_the_line_that_allocates():
    changed = diff("indexer", "transient", "persistent_logits").splitlines()

    assert "-        logits = empty_logits(device, call)" in changed


def test_an_unknown_name_is_answered_with_the_known_ones():
    with pytest.raises(UnknownVariantError, match="unknown variant: c; there are a, b"):
        lookup({"a": 1, "b": 2}, "c")


def test_a_module_that_is_no_variant_is_refused():
    with pytest.raises(ImportError, match="needs NAME and build"):
        load("indexer", "payload.indexer.reference")
    with pytest.raises(ImportError):
        load("indexer", "payload.indexer.nothing")


def test_the_command_line_prints_a_diff(capsys):
    assert main(["diff", "runner", "captured", "ordered_streams"]) == 0
    assert "+class HeldUntilJoin:" in capsys.readouterr().out

    assert main(["diff", "runner", "captured", "wider"]) == 2
    assert "there are eager, captured" in capsys.readouterr().err

    assert main([]) == 2


def test_importing_a_variant_does_not_import_the_engine():
    load("cache", "payload.cache.bf16")

    assert "payload.cache.bf16" in sys.modules
