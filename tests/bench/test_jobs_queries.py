"""The generated site of the benchmark of questions: each is answered, and the truth is found again."""

import random
import secrets
from pathlib import Path

import numpy as np

from bench.jobs_queries.__main__ import prepare
from bench.jobs_queries.generator import SiteSize, make
from bench.jobs_queries.questions import ADMIN, QUESTIONS
from laggard_aggregator.jobs.access.filter import JobSelection
from laggard_aggregator.jobs.access.queries import JobQueries
from laggard_aggregator.jobs.index.job_index import JobIndex

SIZE = SiteSize(nodes=128, jobs=400, days=5, detail_days=1)


def test_every_question_is_answered(tmp_path: Path) -> None:
    seed = secrets.randbits(32)
    print(f"seed {seed}")
    asker = prepare(tmp_path, SIZE, 60, seed)
    site = make(SIZE, np.random.default_rng(seed))
    queries = JobQueries(JobIndex(tmp_path))
    assert queries.count(ADMIN, JobSelection()) == len(site.keys)
    for at in random.Random(seed).sample(range(len(site.keys)), 20):
        job = queries.job(ADMIN, site.keys[at])
        assert job is not None
        assert [row["name"] for row in queries.nodes(job)] == sorted(site.nodes_of(at))
    for name in QUESTIONS:
        asker.ask(name)
