"""The fleet: hosts, how they are reached, what serves on them, and groups of them."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StringConstraints, field_validator, model_validator

from fleetctl.errors import InputError
from fleetctl.spec.nearest import nearest
from fleetctl.spec.quantities import Limit, Said
from fleetctl.spec.value import Value

HostName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,79}$")]
AbsolutePath = Annotated[str, StringConstraints(pattern=r"^/[^\x00]*$")]
Url = Annotated[str, StringConstraints(pattern=r"^https?://[^/\s]+$")]


class Sudo(Value):
    """How the login user becomes root; the password never stands in the file.

    Attributes:
        password_env: environment variable of the controller that holds the password.
        password_keyring: service name under which the keyring holds it.
    """

    password_env: str | None = None
    password_keyring: str | None = None


class Host(Value):
    """One host and the service on it.

    Attributes:
        address: what SSH connects to; an alias of the SSH configuration will do.
        user: login name.
        port: of sshd.
        identity: private key file.
        known_hosts: file with the host's key; default your own and the system's.
        ssh_config: the only SSH configuration to read.
        proxy_jump: bastions in the order they are passed, as in OpenSSH; empty forbids them.
        accept_new_host_key: learn the key of a host that has none yet; changed keys are refused.
        transport: `paramiko`, or `openssh` for FIDO keys, GSSAPI and certificates.
        connect_deadline: for reaching it, retries included.
        sudo: how the login user becomes root; left out, nothing is done as another user.
        roles: what it is in the deployment.
        tree: directory that relative patch paths start from.
        python: the interpreter that serves.
        agent_python: the interpreter that runs fleetctl's agent, Python 3.8 or newer.
        serve_scripts: scripts whose exports make the service's environment; the first is edited.
        unit: the systemd service.
        service_url: where the service listens, seen from the host itself.
        router_url: where requests of the whole deployment go, if not to `service_url`.
        health_path: of the health endpoint.
        health_meaning: what a green answer means there, for the record.
        model: the model id that completions must carry.
        restart_order: hosts of a deployment are restarted from low to high.
        labels: facts of your own: `class` or `gpu` makes hosts comparable, hosts of one
            `machine` are never measured at once.
    """

    address: Said
    user: Said | None = None
    port: int | None = Field(default=None, gt=0, lt=65536)
    identity: str | None = None
    known_hosts: str | None = None
    ssh_config: str | None = None
    proxy_jump: tuple[str, ...] | None = None
    accept_new_host_key: bool = False
    transport: Literal["paramiko", "openssh"] = "paramiko"
    connect_deadline: Limit = 15.0
    sudo: Sudo | None = None
    roles: tuple[str, ...] = ()
    tree: AbsolutePath
    python: AbsolutePath
    agent_python: Said = "python3"
    serve_scripts: tuple[AbsolutePath, ...] = ()
    unit: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9:_.@\\-]+\.service$")]
    service_url: Url
    router_url: Url | None = None
    health_path: Annotated[str, StringConstraints(pattern=r"^/")] = "/health"
    health_meaning: str = ""
    model: Said
    restart_order: int = 0
    labels: dict[str, str] = Field(default_factory=dict)

    @property
    def host_class(self) -> str:
        """What makes hosts comparable: the `class` label, or the GPU label."""
        return self.labels.get("class") or self.labels.get("gpu") or "unlabelled"


class Inventory(Value):
    """All hosts by name, and groups of names.

    Attributes:
        hosts: by name; `[defaults]` is filled into each.
        groups: names that stand for several hosts.
    """

    hosts: dict[HostName, Host]
    groups: dict[HostName, tuple[HostName, ...]] = Field(default_factory=dict)

    @field_validator("hosts")
    @classmethod
    def _some_hosts(cls, hosts: dict[str, Host]) -> dict[str, Host]:
        if not hosts:
            raise ValueError("an inventory needs at least one host")
        return hosts

    @model_validator(mode="after")
    def _groups_name_hosts(self) -> Inventory:
        for group, names in self.groups.items():
            if not names:
                raise ValueError(f"group `{group}` is empty")
            for name in names:
                if names.count(name) > 1:
                    raise ValueError(f"group `{group}` names `{name}` twice")
                if name not in self.hosts:
                    hint = nearest(name, self.hosts)
                    raise ValueError(f"group `{group}` names the unknown host `{name}`{hint}")
        return self

    def select(self, target: str) -> tuple[str, ...]:
        """Return the names of the hosts that a role, group or host name stands for, in file order.

        Raises:
            InputError: nothing has that name.
        """
        roles = {role for host in self.hosts.values() for role in host.roles}
        if target in self.hosts:
            return (target,)
        if target in self.groups:
            return self.groups[target]
        if target in roles:
            return tuple(name for name, host in self.hosts.items() if target in host.roles)
        known = [*self.hosts, *self.groups, *sorted(roles)]
        raise InputError(
            f"unknown target: {target}",
            why=f"no host, group or role has that name{nearest(target, known)}",
            next_step=f"the inventory knows {', '.join(known)}",
        )
