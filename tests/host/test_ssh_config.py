"""Configurations: the same user, port, hops and keys as OpenSSH, or a refusal."""

from __future__ import annotations

import os
import pwd
import re
import shutil
import socket
import subprocess
from pathlib import Path

import pytest

from fleetctl.errors import SshConfigRefused
from fleetctl.host import ssh_config_plain
from fleetctl.host.ssh_config import (
    Destination,
    Resolved,
    interpret,
    parse_destination,
    parse_ssh_g,
    resolve,
)
from tests.host.sshd import Sshd

HOME = Path(pwd.getpwuid(os.getuid()).pw_dir)
needs_ssh = pytest.mark.skipif(shutil.which("ssh") is None, reason="no ssh on this machine")

# What both readers must make of a file, for `gpu-1` unless said otherwise.
PLAIN_CONFIGS = {
    "nothing": "",
    "name, user and port": "Host gpu-1\n HostName 10.0.0.7\n User bob\n Port 2222\n",
    "first value wins": "Host gpu-*\n User first\nHost gpu-1\n User second\n Port 2222\n",
    "keys add up": "Host gpu-1\n IdentityFile ~/.ssh/a\nHost *\n IdentityFile /etc/b\n",
    "negation": "Host * !gpu-1\n User everybody\nHost *\n User nobody\n",
    "question mark": "Host gpu-?\n User bob\n",
    "equals sign": "Host gpu-1\n  User=bob\n  Port = 2222\n",
    "quotes": 'Host "gpu-1"\n IdentityFile "/a b/key"\n',
    "case of keywords": "HOST gpu-1\n uSeR bob\n",
    "before any host": "User bob\nHost other\n User eve\n",
    "comments and tabs": "# User eve\nHost gpu-1\n\t# Port 1\n\tUser\tbob\n",
    "hop": "Host gpu-1\n ProxyJump bastion\n",
    "hops": "Host gpu-1\n ProxyJump a,bob@b:2222,ssh://c:33\n",
    "no hop": "Host gpu-1\n ProxyJump none\nHost *\n ProxyJump bastion\n",
    "hop before command": "Host gpu-1\n ProxyJump bastion\n ProxyCommand nc %h %p\n",
    "command before hop": "Host gpu-1\n ProxyCommand nc %h %p\n ProxyJump bastion\n",
    "tokens in the name": "Host gpu-1\n HostName %h.example%%\n",
    "tokens in a key": "Host gpu-1\n User bob\n IdentityFile ~/.ssh/%r@%h:%p-%n-%u\n",
    "tokens in a hop": "Host gpu-1\n User bob\n ProxyJump %r@jump-%h:22\n",
    "environment in a key": "Host gpu-1\n IdentityFile ${FLEETCTL_TEST_KEYS}/key\n",
    "known hosts": "Host gpu-1\n UserKnownHostsFile ~/a /b\n GlobalKnownHostsFile /c\n",
    "no key": "Host gpu-1\n IdentityFile none\n",
    "alias": "Host gpu-1\n HostKeyAlias real\n HashKnownHosts yes\n",
    "identities only": "Host gpu-1\n IdentitiesOnly yes\n CertificateFile ~/c\n",
    "agent": "Host gpu-1\n IdentityAgent /run/agent\n",
    "no agent": "Host gpu-1\n IdentityAgent none\n",
    "agent in the environment": "Host gpu-1\n IdentityAgent $FLEETCTL_TEST_KEYS\n",
    "family and address": "Host gpu-1\n AddressFamily inet6\n BindAddress ::1\n",
    "upper case name": "Host gpu-1\n HostName GPU.Example\n",
    "beyond paramiko": "Host gpu-1\n RevokedHostKeys /r\n PubkeyAuthentication no\n",
}


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FLEETCTL_TEST_KEYS", "/keys")
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    return tmp_path / "config"


def plain(destination: Destination, config: Path) -> Resolved:
    options = ssh_config_plain.resolve(
        destination.host,
        user=destination.user,
        port=destination.port,
        files=(config,),
        local_user=pwd.getpwuid(os.getuid()).pw_name,
    )
    return interpret(destination.host, options)


@needs_ssh
@pytest.mark.parametrize("name", PLAIN_CONFIGS)
def test_without_an_ssh_program_the_answer_is_the_same(config: Path, name: str):
    config.write_text(PLAIN_CONFIGS[name])
    for destination in (Destination("gpu-1"), Destination("gpu-1", "eve", 4444)):
        assert plain(destination, config) == resolve(destination, config=config)


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("Match host gpu-1\n User bob\n", "Match"),
        ("Match tagged x\n User bob\n", "Match"),
        ("Host other\n User x\nMatch all\n", "Match"),
        ("Include more\n", "Include"),
    ],
)
def test_without_an_ssh_program_what_is_not_understood_is_refused(
    config: Path, text: str, word: str
):
    config.write_text(text)
    config.with_name("more").write_text("User bob\n")

    with pytest.raises(SshConfigRefused, match=word) as caught:
        plain(Destination("gpu-1"), config)

    assert "openssh-client" in caught.value.next_step


def test_an_include_of_nothing_is_nothing(config: Path):
    config.write_text("Include /etc/ssh/no-such-folder-*/x\nUser bob\n")

    assert plain(Destination("gpu-1"), config).user == "bob"


@needs_ssh
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Include more\nHost *\n User late\n", ("bob", 2222)),
        (
            "Match host gpu-1 user eve\n Port 1\nMatch host gpu-1\n User bob\n Port 2222\n",
            ("bob", 2222),
        ),
        ("Match originalhost gpu-1\n User bob\n Port 2222\n", ("bob", 2222)),
        ('Match exec "test %h = gpu-1"\n User bob\n Port 2222\n', ("bob", 2222)),
        ("Host gpu-1\n Port 2222\nMatch final\n User bob\n", ("bob", 2222)),
    ],
    ids=["Include", "Match host", "Match originalhost", "Match exec", "Match final"],
)
def test_openssh_is_asked_for_what_only_it_understands(
    config: Path, text: str, expected: tuple[str, int]
):
    more = config.with_name("more")
    more.write_text("Host gpu-1\n User bob\n Port 2222\n")
    config.write_text(text.replace("more", str(more)))

    resolved = resolve(Destination("gpu-1"), config=config)

    assert (resolved.user, resolved.port) == expected


@needs_ssh
@pytest.mark.parametrize("text", ["Nonsense yes\n", "Match nonsense x\n", "Port many\n"])
def test_what_openssh_refuses_is_refused_with_its_words(config: Path, text: str):
    config.write_text(text)

    with pytest.raises(SshConfigRefused) as caught:
        resolve(Destination("gpu-1"), config=config)

    assert str(config) in caught.value.why


@needs_ssh
@pytest.mark.parametrize(
    "template",
    ["~/%r-%h-%p-%n", "/%%-%u-%i-%l-%L", "%d/key", "${FLEETCTL_TEST_KEYS}/%r", "/with space/%h"],
)
def test_keys_are_looked_for_where_openssh_looks(config: Path, shared_sshd: Sshd, template: str):
    config.write_text(
        f"Host gpu-1\n HostName 127.0.0.1\n Port {shared_sshd.port}\n User bob\n"
        f' IdentityFile "{template}"\n UserKnownHostsFile /dev/null\n'
    )
    heard = subprocess.run(
        ["ssh", "-v", "-F", str(config), "-o", "BatchMode=yes", "gpu-1", "true"],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=30,
        check=False,
    ).stderr
    (looked_for,) = re.findall(r"identity file (.*) type", heard.replace("-cert type", " cert "))

    assert [str(path) for path in resolve(Destination("gpu-1"), config=config).identity_files] == [
        looked_for
    ]


def test_a_token_that_nobody_knows_is_refused():
    with pytest.raises(SshConfigRefused, match="%Z"):
        interpret("gpu-1", {"user": ("bob",), "identityfile": ("/keys/%Z",)})


@pytest.mark.parametrize(
    ("option", "word"),
    [
        ("proxycommand nc %h %p", "ProxyCommand"),
        ("knownhostscommand /bin/keys", "KnownHostsCommand"),
        ("revokedhostkeys /etc/revoked", "RevokedHostKeys"),
        ("pkcs11provider /usr/lib/x.so", "PKCS11Provider"),
        ("bindinterface eth1", "BindInterface"),
        ("pubkeyauthentication false", "PubkeyAuthentication no"),
    ],
)
def test_options_that_only_openssh_can_honour_are_named(option: str, word: str):
    assert interpret("gpu-1", parse_ssh_g(f"user bob\n{option}\n")).beyond_paramiko == (word,)


def test_the_same_options_switched_off_are_not_named():
    text = "user bob\nproxycommand none\nrevokedhostkeys none\npubkeyauthentication true\n"

    assert interpret("gpu-1", parse_ssh_g(text)).beyond_paramiko == ()


def test_the_agent_of_the_environment_is_the_default(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SSH_AUTH_SOCK", "/run/mine")

    assert interpret("gpu-1", {"user": ("bob",)}).agent == Path("/run/mine")
    assert interpret("gpu-1", {"user": ("bob",), "identityagent": ("none",)}).agent is None


def test_any_address_family_is_the_default():
    assert interpret("gpu-1", {"user": ("bob",)}).family is socket.AF_UNSPEC


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("gpu-1", Destination("gpu-1")),
        ("bob@gpu-1", Destination("gpu-1", "bob")),
        ("bob@gpu-1:2222", Destination("gpu-1", "bob", 2222)),
        ("a@b@gpu-1", Destination("gpu-1", "a@b")),
        ("[::1]:2222", Destination("::1", None, 2222)),
        ("bob@[fe80::1]", Destination("fe80::1", "bob")),
        ("fe80::1", Destination("fe80::1")),
        ("ssh://bob@gpu-1:2222/", Destination("gpu-1", "bob", 2222)),
    ],
)
def test_hosts_are_read_as_typed(text: str, expected: Destination):
    assert parse_destination(text) == expected


@pytest.mark.parametrize("text", ["", "bob@", "gpu-1:", "gpu-1:ssh", "[::1", "[::1]:"])
def test_hosts_that_make_no_sense_are_refused(text: str):
    with pytest.raises(SshConfigRefused, match="jump host"):
        parse_destination(text)
