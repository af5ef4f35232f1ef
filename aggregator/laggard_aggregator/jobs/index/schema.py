"""Tables of the hot index of jobs: an SQLite file made from the archive's Parquet files."""

import hashlib
import math
from typing import Final

VERSION: Final = 10
"""Incremented when the tables change; an index of another version is rebuilt. Negative while it is built."""
PAGE_BYTES: Final = 16_384
"""Bytes of a page: lists read scattered rows and short stretches of indexes."""
BLOCK_NODES: Final = 64
"""Consecutive nodes of a row of `stays`: bits of an integer."""

LARGE_NODES: Final = 256
"""Jobs of this many nodes and more are few, and have smaller indexes."""

OPEN_SPAN: Final = 7
"""Class of jobs without an end; those before it are of at most 1, 4, 16 hours and so on."""

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
server_read_bytes server_written_bytes amplification unaccounted_ratio coverage trace_difference
mib_per_second_error mean_read_mib_per_second_error mean_written_mib_per_second_error mdops_error
nodes_with_io shared mode_n_n mode_n_m mode_n_1 mode_1_1 mode_unknown
"""


def tick(at: float) -> int:
    """A time in the coordinates of the R*Tree."""
    return min(max(int(at) - TIME_ORIGIN, -TIME_ORIGIN), TIME_ORIGIN - 1)


def span(seconds: float | None) -> int:
    """Class of jobs of about this length, so that those of a time are found; OPEN_SPAN of one that runs."""
    if seconds is None:
        return OPEN_SPAN
    return min(max(math.ceil(math.log(max(seconds, 1.0) / 3600.0, 4.0)), 0), OPEN_SPAN - 1)


def key_digest(job_key: str) -> int:
    """A number of 64 bits for a key, short enough for several indexes."""
    return int.from_bytes(
        hashlib.blake2b(job_key.encode(errors="replace"), digest_size=8).digest(), signed=True
    )


JOB_COLUMNS: Final = tuple(_JOB.split())
SUMMARY_COLUMNS: Final = tuple(_SUMMARY.split())
FINDING_COLUMNS: Final = ("kind", "cause", "factor", "share", "text", "advice", "neighbour", "named")

_OF_JOB: Final = "set at = new.at, user_id = new.user_id, account_id = new.account_id"
_SPREAD: Final = f"""
    update spans set seconds = max(seconds, coalesce(new.end - new.at, 0)) where span = new.span;
    update uses {_OF_JOB} where job = new.id;
    update stays {_OF_JOB} where job = new.id;
    update summaries {_OF_JOB} where id = new.id;
    update verdicts {_OF_JOB} where id = new.id;
    update findings {_OF_JOB} where job = new.id;
"""  # noqa: S608 - a constant
"""Copies the time and owner of jobs to the rows that lists begin with."""

TABLES: Final = f"""
create table parts (kind text, folder text, first integer, last integer, primary key (kind, folder, first));
create table keys (id integer primary key, job_key text not null unique);
create table owners (id integer primary key, name text not null unique);
create table jobs (
    id integer primary key, revision_at integer not null, day text not null, at real not null,
    job_key text not null, key_digest integer not null, user_id integer, account_id integer,
    span integer not null,
    {", ".join(f'"{name}"' for name in JOB_COLUMNS)});
create table nodes (number integer primary key, name text not null unique);
create table members (
    id integer primary key, job integer not null, revision_at integer not null, observed integer not null,
    low integer not null, high integer not null, start real not null, end real,
    unique (job, revision_at, observed, low, high, start));
create virtual table boxes using rtree_i32(id, start, end, low, high, +job integer);
create table stays (
    job integer, block integer, nodes integer not null, at real, user_id integer, account_id integer,
    primary key (job, block)) without rowid;
create table components (id integer primary key, layer text, name text, unique (name, layer));
create table uses (
    job integer, component integer, revision_at integer not null, at real,
    user_id integer, account_id integer, primary key (job, component)) without rowid;
create table summaries (
    id integer primary key, revision_at integer not null, rate real, ratio real,
    at real, user_id integer, account_id integer,
    {", ".join(f'"{name}"' for name in SUMMARY_COLUMNS)});
create table verdicts (
    id integer primary key, revision_at integer not null, joined_at integer not null, verdict text not null,
    slowdown real, sentence text, at real, user_id integer, account_id integer);
create table findings (
    job integer, revision_at integer not null, rank integer, kind text not null, cause text, factor real,
    share real, text text, advice text, neighbour text, named text,
    at real, user_id integer, account_id integer,
    primary key (job, rank)) without rowid;
create table history (
    user text, account text, application text, node_count integer,
    runs integer, p10 real, median real, p90 real,
    primary key (user, account, application, node_count)) without rowid;
create table touched (
    user text, account text, application text, node_count integer,
    primary key (user, account, application, node_count)) without rowid;
create table spans (span integer primary key, seconds real not null);
insert into spans values {", ".join(f"({span}, 0)" for span in range(OPEN_SPAN))}, ({OPEN_SPAN}, 1e12);
create trigger job_added after insert on jobs begin
    {_SPREAD}
end;
create trigger job_changed after update on jobs when
(old.at, old.end, old.user_id, old.account_id) is not (new.at, new.end, new.user_id, new.account_id) begin
    {_SPREAD}
end;
pragma user_version = -{VERSION};
"""  # noqa: S608 - names of this module

# One job is searched together with whom it belongs to: one of others costs the same as one that never was.
# The columns after `id` are for lists with several conditions: filtered without reading each job.
INDEXES: Final = f"""
create index if not exists jobs_at on jobs (at, id, end, node_count, state, application);
create index if not exists jobs_user on jobs (
    user, at, id, end, account, application, state, node_count);
create index if not exists jobs_account on jobs (
    account, at, id, end, user, application, state, node_count);
create index if not exists jobs_user_account on jobs (user, account, at, id);
create index if not exists jobs_user_application on jobs (user, application, at, id, end, state, node_count);
create index if not exists jobs_account_application on jobs (
    account, application, at, id, end, state, node_count);
create index if not exists jobs_large on jobs (at, id, node_count) where node_count >= {LARGE_NODES};
create index if not exists jobs_large_user on jobs (user, at, id, node_count)
    where node_count >= {LARGE_NODES};
create index if not exists jobs_large_account on jobs (account, at, id, node_count)
    where node_count >= {LARGE_NODES};
create index if not exists jobs_open on jobs (at, id) where end is null;
create index if not exists jobs_application on jobs (application, at, id, end, state, node_count);
create index if not exists jobs_state on jobs (state, at, id);
create index if not exists jobs_key_user on jobs (key_digest, user);
create index if not exists jobs_key_account on jobs (key_digest, account);
create index if not exists jobs_id_user on jobs (raw_id, user, at);
create index if not exists jobs_id_account on jobs (raw_id, account, at);
create index if not exists jobs_shown_user on jobs (job, user, at);
create index if not exists jobs_shown_account on jobs (job, account, at);
create index if not exists jobs_span on jobs (span, at, end, id);
create index if not exists jobs_day on jobs (day);
create index if not exists jobs_group on jobs (user, account, application, node_count);
create index if not exists uses_component on uses (component, at, job);
create index if not exists uses_user on uses (user_id, component, at, job);
create index if not exists uses_account on uses (account_id, component, at, job);
create index if not exists stays_block on stays (block, at, job, nodes);
create index if not exists stays_user on stays (user_id, block, at, job, nodes);
create index if not exists stays_account on stays (account_id, block, at, job, nodes);
create index if not exists summaries_amplification on summaries (amplification);
create index if not exists summaries_amplified on summaries (at, id) where amplification > 1.5;
create index if not exists summaries_amplified_user on summaries (user_id, at, id) where amplification > 1.5;
create index if not exists summaries_amplified_account on summaries (account_id, at, id)
    where amplification > 1.5;
create index if not exists summaries_ratio on summaries (ratio, at, id);
create index if not exists summaries_at on summaries (at, id, ratio);
create index if not exists summaries_user on summaries (user_id, at, id, ratio);
create index if not exists summaries_account on summaries (account_id, at, id, ratio);
create index if not exists summaries_load on summaries (id, mdops, rate);
create index if not exists summaries_revision on summaries (revision_at);
create index if not exists verdicts_at on verdicts (verdict, at, id) where verdict <> 'as usual';
create index if not exists verdicts_user on verdicts (user_id, verdict, at, id) where verdict <> 'as usual';
create index if not exists verdicts_account on verdicts (account_id, verdict, at, id)
    where verdict <> 'as usual';
create index if not exists findings_at on findings (kind, at, job);
create index if not exists findings_user on findings (user_id, kind, at, job);
create index if not exists findings_account on findings (account_id, kind, at, job);
"""
