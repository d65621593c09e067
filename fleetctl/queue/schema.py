"""Our tables beside the engine's: what a cell is, who works, and content by digest.

Where a cell stands and what it brought is the engine's to know (`dbos.workflow_status`); our
tables hold what the engine has no word for: blocks, sites, arms and attempts.
"""

# S608: everything put into the text below is a constant of this module
# ruff: noqa: S608

from __future__ import annotations

VERSION = 1
# taken while the tables are made; a number of our own
LOCK = 4_170_253_811
BOARD = "fleetctl-board"

SCHEMA = f"""
CREATE SCHEMA IF NOT EXISTS fleetctl;
CREATE TABLE IF NOT EXISTS fleetctl.version (version integer PRIMARY KEY);
INSERT INTO fleetctl.version SELECT {VERSION}
  WHERE NOT EXISTS (SELECT FROM fleetctl.version);
CREATE TABLE IF NOT EXISTS fleetctl.campaigns (
  campaign text PRIMARY KEY, head jsonb NOT NULL, made_at timestamptz NOT NULL DEFAULT now(),
  is_open boolean NOT NULL DEFAULT true
);
CREATE TABLE IF NOT EXISTS fleetctl.runs (
  workflow text PRIMARY KEY, campaign text NOT NULL, id text NOT NULL, cell text NOT NULL,
  arm text NOT NULL, digest text NOT NULL, run integer NOT NULL, block text NOT NULL,
  position integer NOT NULL, attempt integer NOT NULL, faults integer NOT NULL,
  site text NOT NULL DEFAULT '', worker text NOT NULL DEFAULT '', owner text NOT NULL DEFAULT '',
  why text NOT NULL DEFAULT '', wanted boolean NOT NULL DEFAULT true
);
CREATE INDEX IF NOT EXISTS runs_of_campaign ON fleetctl.runs (campaign, position);
CREATE INDEX IF NOT EXISTS runs_of_owner ON fleetctl.runs (owner) WHERE owner <> '';
CREATE INDEX IF NOT EXISTS runs_of_site ON fleetctl.runs (site) WHERE owner <> '';
CREATE TABLE IF NOT EXISTS fleetctl.quarantined (
  campaign text NOT NULL, site text NOT NULL, why text NOT NULL, PRIMARY KEY (campaign, site)
);
CREATE TABLE IF NOT EXISTS fleetctl.workers (
  id text PRIMARY KEY, name text NOT NULL, lost_after_s double precision NOT NULL,
  seen_at timestamptz NOT NULL DEFAULT now(), lost_at timestamptz
);
CREATE TABLE IF NOT EXISTS fleetctl.claims (
  machine text PRIMARY KEY, owner text NOT NULL
);
CREATE TABLE IF NOT EXISTS fleetctl.content (
  sha256 text PRIMARY KEY, bytes bytea NOT NULL
);
CREATE TABLE IF NOT EXISTS fleetctl.files (
  owner text NOT NULL, path text NOT NULL, sha256 text NOT NULL, size bigint NOT NULL,
  place text NOT NULL DEFAULT '', PRIMARY KEY (owner, path)
);
CREATE TABLE IF NOT EXISTS fleetctl.shards (
  trial text NOT NULL, shard integer NOT NULL, owner text NOT NULL, task jsonb NOT NULL,
  made_at timestamptz NOT NULL DEFAULT now(), worker text NOT NULL DEFAULT '',
  ready_at timestamptz, start_at timestamptz, is_done boolean NOT NULL DEFAULT false,
  fault text NOT NULL DEFAULT '', PRIMARY KEY (trial, shard)
);
"""
