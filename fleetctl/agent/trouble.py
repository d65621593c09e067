"""What the host's own trouble is called: a full disk or a read-only state is no bug of fleetctl."""

from __future__ import annotations

import errno

from fleetctl.errors import FleetError, RemoteFailed
from fleetctl.transaction.failure import NotBack

THE_HOSTS_OWN = {
    errno.ENOSPC,
    errno.EDQUOT,
    errno.EROFS,
    errno.EIO,
    errno.EACCES,
    errno.EPERM,
    errno.ENOMEM,
    errno.EAGAIN,
    errno.EMFILE,
    errno.ENFILE,
    errno.ESTALE,
    errno.ENOLCK,
    errno.EBUSY,
    errno.EFBIG,
    errno.ENAMETOOLONG,
}
RESTORING = ("restore", "release", "unlock")


def trouble(verb: str, error: BaseException) -> FleetError | None:
    """Return the error for a verb that the host could not do; None where it is no such trouble."""
    if not isinstance(error, OSError) or error.errno not in THE_HOSTS_OWN:
        return None
    where = f" ({error.filename})" if error.filename else ""
    why = f"{error.strerror}{where}"
    if verb in RESTORING:
        next_step = "remove the cause; the host goes on trying, or run the restore again"
        return NotBack("the host could not be restored", why=why, next_step=next_step)
    return RemoteFailed(
        f"the host could not do `{verb}`",
        why=why,
        next_step="remove the cause on the host and repeat; what is held there goes back by itself "
        "once it can",
    )
