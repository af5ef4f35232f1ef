from collections import Counter

from laggard_agent.sampling.splay import phase_ns

BATCH_NS = 5 * 10**9


def test_five_thousand_nodes_publish_all_over_the_batch_interval() -> None:
    phases = [phase_ns("site", f"node-{i}", BATCH_NS) for i in range(5000)]
    assert all(0 <= phase < BATCH_NS for phase in phases)
    tenths = Counter(phase * 10 // BATCH_NS for phase in phases)
    assert min(tenths[i] for i in range(10)) > 400
    assert max(tenths.values()) < 600


def test_a_node_keeps_its_phase_and_another_site_has_another() -> None:
    assert phase_ns("a", "oss-1", BATCH_NS) == phase_ns("a", "oss-1", BATCH_NS)
    assert phase_ns("a", "oss-1", BATCH_NS) != phase_ns("b", "oss-1", BATCH_NS)
