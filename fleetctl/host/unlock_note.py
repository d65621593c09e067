"""Who ended somebody's lease by hand, and when: a note on the host for whoever held it.

A lease that is gone looks the same whether it ran out or was unlocked, and who comes back after
a cut network has to know which. The note lies in the agent's directory, so `forget` removes it.
"""

from __future__ import annotations

from dataclasses import dataclass

from fleetctl.host.transport import Transport
from fleetctl.transaction.lease import IDENTIFIER

# sets $state from $given: what is asked for, what the host says, or the place by default
STATE = """\
umask 077
if [ -n "$given" ]; then state=$given
elif [ -n "$FLEETCTL_STATE" ]; then state=$FLEETCTL_STATE
elif [ "$(id -u)" = 0 ]; then state=/var/lib/fleetctl
else state=$HOME/.local/state/fleetctl; fi
"""
KEPT_NOTES = 20
_LEAVE = f"""\
given=$1
{STATE}
[ -O "$state" ] && mkdir -p "$state/unlocked" && cd "$state/unlocked" || exit 0
printf '%s %s\\n' "$(date +%s)" "$3" >"$2.new" && mv -f "$2.new" "$2"
ls -t | grep -vxF -e "$2" | tail -n +{KEPT_NOTES} | while read -r old; do rm -f "$old"; done
"""
_READ = f'given=$1\n{STATE}\n[ ! -f "$state/unlocked/$2" ] || cat "$state/unlocked/$2"\n'
_DROP = f'given=$1\n{STATE}\nrm -f "$state/unlocked/$2"\n'
_DEADLINE_S = 15.0


@dataclass(frozen=True)
class UnlockNote:
    """The end of a lease by hand.

    Attributes:
        by: `user@machine` of who ended it.
        at_s: when, on the host's wall clock.
    """

    by: str
    at_s: float


@dataclass(frozen=True)
class UnlockNotes:
    """The notes of one host; every method raises HostError when it can't be asked.

    Attributes:
        transport: an open connection.
        state_dir: as for the agent; empty for the place by default.
    """

    transport: Transport
    state_dir: str = ""

    def leave(self, lease_id: str, by: str) -> None:
        """Note who is about to end a lease; a host without room for it loses the note only."""
        self._run(_LEAVE, lease_id, by)

    def drop(self, lease_id: str) -> None:
        """Take a note back: the lease had ended by itself before."""
        self._run(_DROP, lease_id)

    def read(self, lease_id: str) -> UnlockNote | None:
        """Return who ended a lease by hand; None when nobody did, as far as the host knows."""
        at, _, by = self._run(_READ, lease_id).strip().partition(" ")
        return UnlockNote(by, float(at)) if at.isdecimal() and by else None

    def _run(self, script: str, lease_id: str, *words: str) -> str:
        if not IDENTIFIER.fullmatch(lease_id):  # it names a file
            return ""
        argv = ["sh", "-c", script, "fleetctl", self.state_dir, lease_id, *words]
        done = self.transport.run(argv, deadline_s=_DEADLINE_S)
        return done.stdout.decode(errors="replace")
