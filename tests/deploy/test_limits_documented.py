"""The documents name the limits that the code has: each sentence is made here of its constants."""

import re
from pathlib import Path

import pytest

from laggard_agent.sampling import batcher
from laggard_aggregator.alarms.overrides import MOST_COMMENT_CHARS, MOST_COMMENTS, MOST_TICKET_CHARS
from laggard_aggregator.archive.history import MAX_POINTS, READ_SECONDS
from laggard_aggregator.control.requests import MOST_NAMED
from laggard_aggregator.engine import routing
from laggard_aggregator.ingest import admission, dedup_state, schema_limit, schema_wait
from laggard_aggregator.jobs.access.filter import MAX_PAGE
from laggard_aggregator.jobs.records import hostlist, poll_task, sacct_poll
from laggard_aggregator.jobs.verdict import findings_pass, judge
from laggard_aggregator.notify import dispatcher
from laggard_aggregator.status import window_history
from laggard_aggregator.status.urls import MAX_RANGE_SECONDS
from laggard_aggregator.web import actions, answers, api, exposition, jobs_api, server
from laggard_aggregator.web.pages import charts, events
from laggard_aggregator.windows import store

DOCS = Path(__file__).parents[2] / "docs"
MIB = 1024**2
_WORDS = {4: "four"}

SENTENCES = (
    ("api.md", f"At most {server.MAX_CONNECTIONS} connections are served"),
    ("api.md", f"A request's head must come within {server.HEAD_SECONDS:.0f} s"),
    ("api.md", f"must take something of its answer within {server.TAKEN_SECONDS:.0f} s"),
    ("api.md", f"all of it within {server.ANSWER_SECONDS:.0f} s"),
    ("api.md", f"more than {answers.PART_BYTES // 1024} KiB that are being sent"),
    ("api.md", f"take at most {answers.MAX_BYTES // MIB} MiB, further ones are 503"),
    ("api.md", f"1,000 by default, at most {api.MOST_ALARMS:,}"),
    ("api.md", f"up to {MOST_COMMENT_CHARS} printable characters; up to {MOST_TICKET_CHARS} characters of"),
    ("api.md", f"with at most {MOST_NAMED} names"),
    ("api.md", f"413 more than {actions.MAX_BODY_BYTES // 1024} KiB"),
    ("api.md", f"429 more than {actions.MOST_PER_MINUTE} in a minute"),
    ("api.md", f"`limit` is 1-{MAX_PAGE} (default {jobs_api.PAGE_JOBS})"),
    ("api.md", f"length of an interval, and their ends: at most {MAX_POINTS}"),
    ("api.md", f"a read that was ended after {READ_SECONDS:.0f} s"),
    ("api.md", f"longer than {MAX_RANGE_SECONDS // 86_400} days"),
    ("jobs.md", f"node list of more than {hostlist.MAX_NODES:,} nodes"),
    ("jobs.md", f"A query may take ten minutes and return {sacct_poll.MAX_OUTPUT_BYTES >> 30} GiB."),
    ("jobs.md", f"a poll {poll_task.TOLD_SECONDS:.0f} s later that reaches "),
    ("jobs.md", f"reaches {poll_task.BRIEF_REACH_SECONDS / 60:.0f} minutes back"),
    ("jobs.md", f"at most 5 % of a core, {findings_pass.MAX_JOBS} jobs a minute"),
    ("job-methods.md", f"the files of up to {judge.MOST_EARLIER} earlier runs"),
    ("reliability.md", f"{admission.MAX_NODES:,} nodes, {admission.MAX_SOURCES} sources and "),
    ("reliability.md", f"{dedup_state.MAX_NODE_STREAMS} streams a node"),
    ("reliability.md", f"{dedup_state.MAX_RANGES:,} ranges a stream"),
    (
        "reliability.md",
        f"silent for {dedup_state.KEPT_NS // (60 * 10**9)} minutes, everything of it is durable",
    ),
    (
        "reliability.md",
        f"a node's {routing.MAX_NODE_ROWS:,} or of a group's {store.MAX_COMPONENTS:,} compared components",
    ),
    ("reliability.md", f"silent for {routing.GONE_NS // (60 * 10**9)} minutes while their node goes on"),
    (
        "reliability.md",
        f"until more than {batcher.MAX_ABSENT_COMPONENTS} and {_WORDS[batcher.MAX_ABSENT_RATIO]} times those",
    ),
    ("reliability.md", f"at most {exposition.MAX_UNHEALTHY} unhealthy nodes"),
    ("reliability.md", f"| {schema_limit.MAX_WAITING_BYTES // MIB} MiB, "),
    ("reliability.md", f"{schema_limit.MAX_NODE_WAITING_BYTES // MIB} MiB a node | the oldest are dropped"),
    ("reliability.md", f"Of schemas a node has {schema_limit.BYTES_PER_MINUTE // MIB} MiB a minute read"),
    (
        "reliability.md",
        f"{schema_wait.MAX_HELD:,} with 1.2 kB each besides; {schema_wait.MAX_HELD_OF_NODE:,} a",
    ),
    ("reliability.md", f"takes nothing of its answer for {server.TAKEN_SECONDS:.0f} s is let go"),
    ("metrics.md", f"more than {schema_limit.BYTES_PER_MINUTE // MIB} MiB of schemas a minute"),
    ("page.md", f"up to {window_history.MAX_WINDOWS} windows per group (a day at the default shift)"),
    ("page.md", f"{window_history.MAX_CELLS // 1_000_000} million verdicts in all"),
    ("page.md", f"At most {events.MAX_STREAMS} pages are live"),
    ("page.md", f"Beyond {charts.MAX_WINDOWS} windows merged cells show the worst"),
    ("page.md", f"that factor over the last {charts.SPARK_WINDOWS} windows"),
    ("page.md", f"the first of the {MAX_PAGE:,} newest that match"),
    ("operators.md", f"up to {MOST_COMMENTS} comments"),
    ("mail.md", f"| {dispatcher.MAX_WAITING} mails wait |"),
    (
        "security.md",
        f"Bodies are limited to {actions.MAX_BODY_BYTES // 1024} KiB and {actions.BODY_SECONDS:.0f} s, "
        f"an operator to {actions.MOST_PER_MINUTE} decisions in a minute",
    ),
    ("metrics.md", f"a small one counts {schema_limit.LEAST_BYTES // 1024} KiB"),
)


@pytest.mark.parametrize(("name", "sentence"), SENTENCES, ids=[text[:60] for _, text in SENTENCES])
def test_the_document_has_the_limit_of_the_code(name: str, sentence: str) -> None:
    text = re.sub(r"\s+", " ", (DOCS / name).read_text())
    assert re.sub(r"\s+", " ", sentence) in text


def test_sacct_has_the_time_that_the_document_says() -> None:
    assert sacct_poll.TIMEOUT_SECONDS == 600.0, "ten minutes"
    assert jobs_api.MOST_ROWS == 1_000_000, "a million rows"
