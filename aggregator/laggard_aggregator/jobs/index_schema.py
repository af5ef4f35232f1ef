"""Tables of the hot index of jobs: an SQLite file made from the archive's Parquet files."""

import hashlib
from typing import Final

VERSION: Final = 3
"""Incremented when the tables change; an index of another version is rebuilt."""

TIME_ORIGIN: Final = 1 << 31
"""Subtracted from seconds in the R*Tree, whose coordinates have 32 bits: 1970 to 2106."""

_JOB: Final = """
cluster raw_id submit sluid restarts job array_job array_task het_job het_offset user account name application
partition state source uid exit_code eligible start end modified node_count tasks cpus exclusive doubtful
"""
_SUMMARY: Final = """
read_bytes written_bytes metadata_operations mean_read_mib_per_second peak_read_mib_per_second
mean_written_mib_per_second peak_written_mib_per_second iops mdops active_seconds core_hours
client_read_bytes client_written_bytes forwarder_read_bytes forwarder_written_bytes
server_read_bytes server_written_bytes amplification unaccounted_ratio coverage
nodes_with_io shared mode_n_n mode_n_m mode_n_1 mode_1_1 mode_unknown
"""


def key_digest(job_key: str) -> int:
    """A number of 64 bits for a key, short enough for several indexes."""
    return int.from_bytes(hashlib.blake2b(job_key.encode(), digest_size=8).digest(), signed=True)


JOB_COLUMNS: Final = tuple(_JOB.split())
SUMMARY_COLUMNS: Final = tuple(_SUMMARY.split())

TABLES: Final = f"""
create table parts (kind text, folder text, first integer, last integer, primary key (kind, folder, first));
create table keys (id integer primary key, job_key text not null unique);
create table jobs (
    id integer primary key, revision_at integer not null, day text not null, at real not null,
    key_digest integer not null,
    {", ".join(f'"{name}"' for name in JOB_COLUMNS)});
create table nodes (number integer primary key, name text not null unique);
create table members (
    id integer primary key, job integer not null, revision_at integer not null, observed integer not null,
    low integer not null, high integer not null, start real not null, end real,
    unique (job, revision_at, observed, low, high, start));
create virtual table boxes using rtree_i32(id, start, end, low, high);
create table components (id integer primary key, layer text, name text, unique (name, layer));
create table uses (
    job integer, component integer, revision_at integer not null, primary key (job, component))
    without rowid;
create table summaries (
    id integer primary key, revision_at integer not null, rate real, ratio real,
    {", ".join(f'"{name}"' for name in SUMMARY_COLUMNS)});
create table history (
    user text, account text, application text, node_count integer,
    runs integer, p10 real, median real, p90 real,
    primary key (user, account, application, node_count)) without rowid;
create table touched (
    user text, account text, application text, node_count integer,
    primary key (user, account, application, node_count)) without rowid;
pragma user_version = {VERSION};
"""

# One job is searched together with whom it belongs to: one of others costs the same as one that never was.
# The columns after `id` are for the lists of one who sees but some jobs: filtered without reading each job.
INDEXES: Final = """
create index if not exists jobs_at on jobs (at, id);
create index if not exists jobs_user on jobs (
    user, at, id, account, application, state, node_count);
create index if not exists jobs_account on jobs (
    account, at, id, user, application, state, node_count);
create index if not exists jobs_application on jobs (application, at, id);
create index if not exists jobs_state on jobs (state, at, id);
create index if not exists jobs_key_user on jobs (key_digest, user);
create index if not exists jobs_key_account on jobs (key_digest, account);
create index if not exists jobs_id_user on jobs (raw_id, user, at);
create index if not exists jobs_id_account on jobs (raw_id, account, at);
create index if not exists jobs_shown_user on jobs (job, user, at);
create index if not exists jobs_shown_account on jobs (job, account, at);
create index if not exists jobs_day on jobs (day);
create index if not exists jobs_group on jobs (user, account, application, node_count);
create index if not exists uses_component on uses (component, job);
create index if not exists summaries_amplification on summaries (amplification);
create index if not exists summaries_ratio on summaries (ratio);
"""
