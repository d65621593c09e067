"""What is said to the database about cells; parameters are psycopg's.

The engine's table is read, and written in three places: a cell goes from the board to a worker's
queue, from a worker back to the board, and from a lost worker back to the board. Each is guarded
by where the row stands, and takes the owner's token away wherever somebody may have run it: what
that execution says later is refused by the engine.
"""

# S608: everything put into the texts below is a constant of this module
# ruff: noqa: S608

from __future__ import annotations

from fleetctl.queue.schema import BOARD

_RUN = "r.id, r.cell, r.arm, r.digest, r.run, r.block, r.position, r.attempt, r.faults"
_JOINED = "fleetctl.runs r JOIN dbos.workflow_status s ON s.workflow_uuid = r.workflow"
_UNDER_WAY = f"(s.status = 'PENDING' OR s.status = 'ENQUEUED' AND s.queue_name <> '{BOARD}')"
_NOW_MS = "(extract(epoch FROM clock_timestamp()) * 1000)::bigint"
_TO_BOARD = f"""
UPDATE dbos.workflow_status s SET status = 'ENQUEUED', queue_name = '{BOARD}',
  owner_xid = NULL, started_at_epoch_ms = NULL, updated_at = {_NOW_MS}
"""
_THIS_ATTEMPT = """
r.workflow = %(workflow)s AND r.attempt = %(attempt)s
  AND s.status = 'PENDING' AND s.executor_id = %(mine)s
"""

PUT = """
INSERT INTO fleetctl.runs
  (workflow, campaign, id, cell, arm, digest, run, block, position, attempt, faults)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)
ON CONFLICT (workflow) DO UPDATE
SET cell = excluded.cell, arm = excluded.arm, position = excluded.position
"""
# two workers that ask for one site at once are served one after the other
LOCK_SITE = "SELECT pg_advisory_xact_lock(hashtextextended(%(site)s, 4170))"
MINE = f"""
SELECT r.workflow, {_RUN} FROM {_JOINED}
WHERE r.campaign = %(campaign)s AND r.owner = %(mine)s AND r.site = %(site)s
  AND r.worker = %(worker)s AND {_UNDER_WAY} ORDER BY r.position
"""
CHOOSE = f"""
SELECT r.workflow FROM {_JOINED}
WHERE r.campaign = %(campaign)s AND r.wanted AND r.block = %(block)s
  AND s.status = 'ENQUEUED' AND s.queue_name = '{BOARD}'
  AND NOT EXISTS (SELECT FROM fleetctl.quarantined q
    WHERE q.campaign = %(campaign)s AND q.site = %(site)s)
  AND NOT EXISTS (SELECT FROM fleetctl.runs o
    JOIN dbos.workflow_status t ON t.workflow_uuid = o.workflow
    WHERE o.site = %(site)s AND o.owner NOT IN ('', %(mine)s)
      AND (t.status = 'PENDING' OR t.status = 'ENQUEUED' AND t.queue_name <> '{BOARD}'))
ORDER BY r.site = %(site)s, r.arm <> %(prefers)s, mod(r.position, %(among)s) <> %(index)s,
  r.position, r.id
LIMIT 1 FOR UPDATE OF s SKIP LOCKED
"""
MOVE = "UPDATE dbos.workflow_status SET queue_name = %(mine)s WHERE workflow_uuid = %(workflow)s"
TAKE = f"""
UPDATE fleetctl.runs r SET attempt = attempt + 1, site = %(site)s, worker = %(worker)s,
  owner = %(mine)s WHERE workflow = %(workflow)s RETURNING {_RUN}
"""
BACK = f"""
{_TO_BOARD} FROM fleetctl.runs r WHERE s.workflow_uuid = r.workflow AND {_THIS_ATTEMPT}
"""
BACK_RUN = """
UPDATE fleetctl.runs SET why = %(why)s, faults = faults + %(fault)s, owner = '',
  site = CASE WHEN %(fault)s = 0 THEN '' ELSE site END
WHERE workflow = %(workflow)s AND attempt = %(attempt)s
"""
NOTE = f"""
UPDATE fleetctl.runs r SET why = %(why)s FROM dbos.workflow_status s
WHERE s.workflow_uuid = r.workflow AND {_THIS_ATTEMPT}
"""
OURS = f"SELECT 1 FROM {_JOINED} WHERE {_THIS_ATTEMPT}"
ENDED = f"""
SELECT 1 FROM {_JOINED} WHERE r.workflow = %(workflow)s AND r.attempt = %(attempt)s
  AND s.status IN ('SUCCESS', 'ERROR') AND s.executor_id = %(mine)s
"""
STATE = f"""
SELECT {_RUN}, s.status, s.queue_name = '{BOARD}', r.site, r.worker, r.why
FROM fleetctl.runs r LEFT JOIN dbos.workflow_status s ON s.workflow_uuid = r.workflow
WHERE r.campaign = %s AND r.wanted ORDER BY r.position, r.id
"""
QUARANTINE = """
INSERT INTO fleetctl.quarantined VALUES (%s, %s, %s)
ON CONFLICT (campaign, site) DO UPDATE SET why = excluded.why
"""
QUARANTINED = "SELECT site, why FROM fleetctl.quarantined WHERE campaign = %s"
FORGIVE = "DELETE FROM fleetctl.quarantined WHERE campaign = %s"
WANTED = "UPDATE fleetctl.runs SET wanted = id = ANY(%s), faults = 0 WHERE campaign = %s"
WITHDRAW = f"""
UPDATE fleetctl.runs r SET wanted = false FROM dbos.workflow_status s
WHERE s.workflow_uuid = r.workflow AND r.campaign = %s AND r.wanted
  AND s.status = 'ENQUEUED' AND s.queue_name = '{BOARD}'
"""

SEEN = """
INSERT INTO fleetctl.workers (id, name, lost_after_s) VALUES (%s, %s, %s)
ON CONFLICT (id) DO UPDATE SET seen_at = now(), lost_at = NULL
"""
# whoever takes something is missed when they die, also right after they were declared lost
SEEN_AGAIN = "UPDATE fleetctl.workers SET seen_at = now(), lost_at = NULL WHERE id = %s"
SILENT = """
SELECT id, name FROM fleetctl.workers
WHERE id <> %s AND lost_at IS NULL AND seen_at < now() - make_interval(secs => lost_after_s)
FOR UPDATE SKIP LOCKED
"""
LOST_RUNS = f"""
UPDATE fleetctl.runs r SET faults = faults + 1, owner = '', why = %(why)s
FROM dbos.workflow_status s WHERE s.workflow_uuid = r.workflow
  AND r.owner = %(worker)s AND {_UNDER_WAY}
"""
LOST = f"""
{_TO_BOARD} WHERE s.status = 'PENDING' AND s.executor_id = %(worker)s
  OR s.status = 'ENQUEUED' AND s.queue_name = %(worker)s
"""
LOST_TRIALS = "DELETE FROM fleetctl.shards WHERE owner = %(worker)s"
LOST_SHARDS = """
UPDATE fleetctl.shards SET fault = %(why)s
WHERE worker = %(worker)s AND NOT is_done AND fault = ''
"""
FORGET_CLAIMS = "DELETE FROM fleetctl.claims WHERE owner = %(worker)s"
MARK_LOST = "UPDATE fleetctl.workers SET lost_at = now() WHERE id = %(worker)s"
# the queues of workers that may yet come back are kept for a day
FORGET_QUEUES = """
DELETE FROM dbos.queues q USING fleetctl.workers w
WHERE q.name = w.id AND (w.id = %(left)s OR w.lost_at < now() - interval '1 day')
"""
FORGET_WORKERS = """
DELETE FROM fleetctl.workers WHERE id = %(left)s OR lost_at < now() - interval '1 day'
"""

ANNOUNCE = """
INSERT INTO fleetctl.campaigns (campaign, head) VALUES (%s, %s)
ON CONFLICT (campaign) DO UPDATE SET head = excluded.head, is_open = true
"""
IS_OPEN = "SELECT is_open FROM fleetctl.campaigns WHERE campaign = %s"
CLOSE = "UPDATE fleetctl.campaigns SET is_open = false WHERE campaign = %s"
UNFINISHED = """
SELECT c.campaign, c.head, array_agg(DISTINCT r.block)
FROM fleetctl.campaigns c JOIN fleetctl.runs r ON r.campaign = c.campaign AND r.wanted
  JOIN dbos.workflow_status s ON s.workflow_uuid = r.workflow
WHERE c.is_open AND s.status IN ('ENQUEUED', 'PENDING')
GROUP BY c.campaign ORDER BY c.made_at, c.campaign
"""
CLAIM = """
INSERT INTO fleetctl.claims VALUES (%s, %s)
ON CONFLICT (machine) DO UPDATE SET owner = fleetctl.claims.owner RETURNING owner
"""
RELEASE = "DELETE FROM fleetctl.claims WHERE machine = %s AND owner = %s"

PUT_CONTENT = "INSERT INTO fleetctl.content VALUES (%s, %s) ON CONFLICT (sha256) DO NOTHING"
HAS_CONTENT = "SELECT 1 FROM fleetctl.content WHERE sha256 = %s"
GET_CONTENT = "SELECT bytes FROM fleetctl.content WHERE sha256 = %s"
ATTACH = """
INSERT INTO fleetctl.files VALUES (%s, %s, %s, %s, %s)
ON CONFLICT (owner, path) DO UPDATE
SET sha256 = excluded.sha256, size = excluded.size, place = excluded.place
"""
ATTACH_FIRST = """
INSERT INTO fleetctl.files VALUES (%s, %s, %s, %s, %s) ON CONFLICT (owner, path) DO NOTHING
"""
FILES = "SELECT path, sha256, size, place FROM fleetctl.files WHERE owner = %s ORDER BY path"

OFFER_SHARD = """
INSERT INTO fleetctl.shards (trial, shard, owner, task) VALUES (%s, %s, %s, %s)
ON CONFLICT (trial, shard) DO NOTHING
"""
# the oldest trial first: two that wait for each other's workers would both wait for ever
TAKE_SHARD = """
UPDATE fleetctl.shards SET worker = %(worker)s WHERE (trial, shard) = (
  SELECT trial, shard FROM fleetctl.shards
  WHERE worker = '' AND fault = '' AND task ->> 'site' = ANY(%(sites)s)
  ORDER BY made_at, trial, shard LIMIT 1 FOR UPDATE SKIP LOCKED)
RETURNING trial, shard, task
"""
SHARD_READY = "UPDATE fleetctl.shards SET ready_at = now() WHERE trial = %s AND shard = %s"
SHARD_DONE = """
UPDATE fleetctl.shards SET is_done = true WHERE trial = %s AND shard = %s AND fault = ''
"""
SHARD_FAULT = """
UPDATE fleetctl.shards SET fault = %s WHERE trial = %s AND shard = %s AND fault = ''
"""
# clock_timestamp(): now() stands still within a transaction
SHARD_START = """
SELECT extract(epoch FROM start_at - clock_timestamp())::float8
FROM fleetctl.shards WHERE trial = %s AND shard = %s AND start_at IS NOT NULL
"""
SHARD_IS_ON = """
SELECT 1 FROM fleetctl.shards WHERE trial = %(trial)s AND shard = %(shard)s AND fault = ''
  AND NOT EXISTS (SELECT FROM fleetctl.shards o WHERE o.trial = %(trial)s AND o.fault <> '')
"""
START_ALL = """
UPDATE fleetctl.shards s SET start_at = now() + make_interval(secs => %(in_s)s)
WHERE s.trial = %(trial)s AND s.start_at IS NULL AND NOT EXISTS (
  SELECT FROM fleetctl.shards o WHERE o.trial = %(trial)s AND (o.ready_at IS NULL OR o.fault <> ''))
"""
SHARDS = """
SELECT shard, worker, ready_at IS NOT NULL, is_done, fault FROM fleetctl.shards
WHERE trial = %s ORDER BY shard
"""
END_SHARDS = "DELETE FROM fleetctl.shards WHERE trial = %s"
GIVE_UP_SHARDS = "UPDATE fleetctl.shards SET fault = %s WHERE trial = %s AND fault = ''"
