"""known_hosts, held against what OpenSSH's own tools make of the same files."""

from __future__ import annotations

import shutil
import subprocess
import threading
from pathlib import Path

import pytest

from fleetctl.host.known_hosts import HostKey, KnownHosts, Trust, learn, load, parse
from tests.host.sshd import make_key


def key_of(path: Path) -> HostKey:
    (entry,) = parse(f"x {path.with_suffix('.pub').read_text()}", "test")
    return entry.key


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> dict[str, HostKey]:
    folder = tmp_path_factory.mktemp("keys")
    return {kind: key_of(make_key(folder / kind, kind)) for kind in ("ed25519", "ecdsa", "rsa")}


@pytest.fixture
def key(keys: dict[str, HostKey]) -> HostKey:
    return keys["ed25519"]


def known(*lines: str) -> KnownHosts:
    return KnownHosts(parse("\n".join(lines), "known_hosts"))


@pytest.mark.parametrize(
    ("names", "host", "port", "is_known"),
    [
        ("gpu-1", "gpu-1", 22, True),
        ("gpu-1", "GPU-1", 22, True),
        ("gpu-1", "gpu-10", 22, False),
        ("a,gpu-1,b", "gpu-1", 22, True),
        ("[gpu-1]:2222", "gpu-1", 2222, True),
        ("[gpu-1]:2222", "gpu-1", 22, False),
        ("[gpu-1]:2222", "gpu-1", 2223, False),
        ("gpu-1", "gpu-1", 2222, True),
        ("*.example", "a.example", 22, True),
        ("*.example", "a.example", 2222, True),
        ("*.example", "example", 22, False),
        ("gpu-?", "gpu-7", 22, True),
        ("gpu-?", "gpu-77", 22, False),
        ("*.example,!bad.example", "good.example", 22, True),
        ("*.example,!bad.example", "bad.example", 22, False),
        ("!bad.example", "good.example", 22, False),
        ("[*.example]:2222", "a.example", 2222, True),
        ("[a-c].example", "b.example", 22, False),
        ("::1", "::1", 22, True),
        ("[::1]:2222", "::1", 2222, True),
    ],
)
def test_names_patterns_and_ports(
    key: HostKey, names: str, host: str, port: int, *, is_known: bool
):
    trust, _ = known(f"{names} {key.text}").judge(host, port, key)

    assert (trust is Trust.KNOWN) == is_known


def test_a_key_of_another_kind_is_a_change_and_names_the_line(keys: dict[str, HostKey]):
    hosts = known("# comment", "", f"gpu-1 {keys['rsa'].text}")

    trust, entries = hosts.judge("gpu-1", 22, keys["ed25519"])

    assert trust is Trust.CHANGED
    assert [entry.where for entry in entries] == ["known_hosts:3"]


def test_a_line_without_a_port_never_contradicts_another_port(keys: dict[str, HostKey]):
    hosts = known(f"gpu-1 {keys['rsa'].text}")

    assert hosts.judge("gpu-1", 2222, keys["ed25519"])[0] is Trust.UNKNOWN


def test_a_revoked_key_is_refused_although_another_line_knows_it(key: HostKey):
    hosts = known(f"gpu-1 {key.text}", f"@revoked * {key.text}")

    assert hosts.judge("gpu-1", 22, key)[0] is Trust.REVOKED


def test_an_authority_is_not_mistaken_for_a_host_key(keys: dict[str, HostKey]):
    hosts = known(f"@cert-authority *.example {keys['rsa'].text}")

    assert hosts.judge("a.example", 22, keys["rsa"])[0] is Trust.AUTHORITY_ONLY
    assert hosts.judge("a.example", 22, keys["ed25519"])[0] is Trust.AUTHORITY_ONLY
    assert hosts.judge("a.other", 22, keys["ed25519"])[0] is Trust.UNKNOWN


def test_a_plain_line_beside_an_authority_decides(keys: dict[str, HostKey]):
    hosts = known(
        f"@cert-authority *.example {keys['rsa'].text}", f"a.example {keys['ed25519'].text}"
    )

    assert hosts.judge("a.example", 22, keys["ed25519"])[0] is Trust.KNOWN
    assert hosts.judge("a.example", 22, keys["ecdsa"])[0] is Trust.CHANGED


def test_kinds_come_in_the_order_of_the_lines_and_without_marked_ones(keys: dict[str, HostKey]):
    hosts = known(
        f"@cert-authority gpu-1 {keys['ed25519'].text}",
        f"gpu-1 {keys['rsa'].text}",
        f"gpu-1 {keys['ecdsa'].text}",
    )

    assert hosts.kinds("gpu-1", 22) == ("ssh-rsa", "ecdsa-sha2-nistp256")


@pytest.mark.parametrize(
    "line",
    [
        "garbage",
        "gpu-1 ssh-ed25519",
        "gpu-1 ssh-ed25519 not*base64",
        "@revoked gpu-1",
        "|1|a|b|c k AAAA",
    ],
)
def test_lines_that_make_no_sense_are_skipped(key: HostKey, line: str):
    assert known(line, f"gpu-1 {key.text}").judge("gpu-1", 22, key)[0] is Trust.KNOWN


def test_files_that_are_not_there_are_empty(tmp_path: Path, key: HostKey):
    hosts = load([tmp_path / "none", tmp_path])

    assert hosts.judge("gpu-1", 22, key)[0] is Trust.UNKNOWN


@pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="no ssh-keygen")
@pytest.mark.parametrize(("host", "port"), [("gpu-1", 22), ("gpu-1.Example", 2222)])
def test_names_hashed_by_openssh_are_found(tmp_path: Path, key: HostKey, host: str, port: int):
    file = tmp_path / "known_hosts"
    name = host if port == 22 else f"[{host}]:{port}"
    file.write_text(f"{name.lower()} {key.text}\n")
    subprocess.run(["ssh-keygen", "-H", "-f", str(file)], check=True, capture_output=True)
    assert host.lower() not in file.read_text()

    assert load([file]).judge(host, port, key)[0] is Trust.KNOWN
    assert load([file]).judge("other", port, key)[0] is Trust.UNKNOWN


@pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="no ssh-keygen")
@pytest.mark.parametrize("is_hashed", [False, True], ids=["plain", "hashed"])
@pytest.mark.parametrize("port", [22, 2222])
def test_what_was_learnt_openssh_finds(tmp_path: Path, key: HostKey, port: int, *, is_hashed: bool):
    file = tmp_path / "new folder" / "known_hosts"

    learn(file, "gpu-1", port, key, is_hashed=is_hashed)

    name = "gpu-1" if port == 22 else f"[gpu-1]:{port}"
    found = subprocess.run(
        ["ssh-keygen", "-F", name, "-f", str(file)], capture_output=True, text=True, check=False
    )
    assert key.text in found.stdout
    assert ("gpu-1" in file.read_text()) == (not is_hashed)
    assert file.stat().st_mode & 0o777 == 0o600


def test_a_file_without_a_last_newline_is_not_spoilt(tmp_path: Path, keys: dict[str, HostKey]):
    file = tmp_path / "known_hosts"
    file.write_text(f"old {keys['rsa'].text}")

    learn(file, "new", 22, keys["ed25519"], is_hashed=False)

    assert load([file]).judge("old", 22, keys["rsa"])[0] is Trust.KNOWN
    assert load([file]).judge("new", 22, keys["ed25519"])[0] is Trust.KNOWN


def test_a_host_learnt_by_many_at_once_is_written_once(tmp_path: Path, key: HostKey):
    file = tmp_path / "known_hosts"
    threads = [
        threading.Thread(target=learn, args=(file, "gpu-1", 22, key), kwargs={"is_hashed": True})
        for _ in range(16)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(file.read_text().splitlines()) == 1


@pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="no ssh-keygen")
def test_the_fingerprint_is_the_one_that_openssh_prints(tmp_path: Path):
    path = make_key(tmp_path / "key")
    printed = subprocess.run(
        ["ssh-keygen", "-lf", str(path)], capture_output=True, text=True, check=True
    )

    assert key_of(path).fingerprint in printed.stdout
