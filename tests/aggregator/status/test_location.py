"""The located cause of signs of several sources, from literal signs."""

from collections.abc import Iterable
from dataclasses import replace
from itertools import permutations

from hypothesis import given
from hypothesis import strategies as st

from laggard_aggregator.metrics.definition import PLACES
from laggard_aggregator.status.location import Location, Paths, Sign, locate, target_of

NAN = float("nan")
CLIENTS = tuple(f"node-{n}" for n in range(8))
PATHS = Paths(
    servers={"OST0001": "oss-1", "OST0002": "oss-2", "10.0.0.1": "oss-1"},
    times={"oss-1": 1.1, "oss-2": 1.0},
    awaits={"oss-1": 1.1, "oss-2": NAN},
    clients={"OST0001": len(CLIENTS), "OST0002": len(CLIENTS)},
    carried={"controller-1": {"oss-1", "oss-2"}},
)


def sign(
    place: str,
    component: str,
    severity: float = 3.0,
    metric: str = "latency",
    level: str = "component",
    confirmed: bool = True,
) -> Sign:
    return Sign((place, component, metric), component, place, level, severity, confirmed)


def waits(target: str, clients: Iterable[str] = CLIENTS, severity: float = 3.0) -> list[Sign]:
    return [sign("target", f"{client}/{target}-osc", severity) for client in clients]


def causes(signs: Iterable[Sign], paths: Paths = PATHS) -> set[tuple[str, str]]:
    return {(where.level, where.component) for where in locate(signs, paths).values()}


def only(signs: list[Sign], paths: Paths = PATHS) -> Location:
    """The one cause of all of `signs`."""
    found = locate(signs, paths)
    assert set(found) == {each.key for each in signs}
    (where,) = set(found.values())
    return where


def test_nothing_is_located_without_signs() -> None:
    assert locate([], PATHS) == {}
    assert locate([], Paths()) == {}


def test_a_slow_disk_explains_its_server_and_its_clients() -> None:
    where = only(
        [sign("disk", "oss-1/sdb", 4.0, "await"), sign("server", "oss-1//srv/b1", 3.5), *waits("OST0001")]
    )
    assert (where.level, where.component) == ("lun", "oss-1/sdb")
    assert where.evidence == (
        "await of oss-1/sdb 4.0×, and the request time, the wait of 8 clients agree: the disk"
    )


def test_request_times_without_await_are_the_server() -> None:
    where = only([sign("server", "OST0001", 3.0, "write_latency"), *waits("OST0001")])
    assert (where.level, where.component) == ("server", "oss-1")
    assert "the await of its disks is like their peers'" in where.evidence
    for node in ("oss-7", "oss-2"):  # the await of the second one is compared, but was not judged
        unknown = only([sign("server", f"{node}//srv/b1")])
        assert (unknown.level, unknown.component) == ("server", node)
        assert "not compared" in unknown.evidence


def test_all_disks_of_a_server_together_are_the_server() -> None:
    where = only([sign("disk", "oss-1", 4.0, level="node"), sign("server", "oss-1", 4.0, level="node")])
    assert (where.level, where.component) == ("server", "oss-1")


def test_retransmits_with_healthy_request_times_are_the_network() -> None:
    where = only([sign("network", "*/10.0.0.1", NAN, "retransmits"), *waits("OST0001")])
    assert (where.level, where.component) == ("network", "oss-1")
    assert where.evidence.startswith("retransmits of */10.0.0.1, and the wait of 8 clients agrees")
    assert causes([sign("network", "*/10.9.9.9", NAN)]) == {("network", "10.9.9.9")}
    assert causes([sign("network", "oss-2/tcp", NAN)]) == {("network", "oss-2")}


def test_waiting_clients_of_a_server_with_healthy_times_are_its_network() -> None:
    where = only(waits("OST0001"))
    assert (where.level, where.component) == ("network", "oss-1")
    assert "its own request times are like its peers'" in where.evidence
    for times in ({}, {"oss-1": NAN}):
        untimed = only(waits("OST0001"), replace(PATHS, times=times))
        assert (untimed.level, untimed.component) == ("server", "oss-1")
        assert "not compared" in untimed.evidence


def test_few_waiting_clients_alone_are_not_located() -> None:
    assert causes(waits("OST0001", CLIENTS[:3])) == set()
    assert causes(waits("OST0001", CLIENTS[:4])) == {("network", "oss-1")}
    assert causes([*waits("OST0001", CLIENTS[:1]), sign("disk", "oss-1/sdb")]) == {("lun", "oss-1/sdb")}


def test_a_client_that_waits_for_all_is_the_client() -> None:
    own = [*waits("OST0001", ["node-3"]), *waits("OST0002", ["node-3"])]
    where = only([sign("client", "node-3/lustre_client"), *own])
    assert (where.level, where.component) == ("client", "node-3")
    assert causes([sign("target", "node-3", level="node")]) == {("client", "node-3")}


def test_a_client_blamed_for_its_targets_is_explained_by_a_server_that_others_wait_for() -> None:
    server = [sign("disk", "oss-1", 9.0, level="node"), *waits("OST0001", CLIENTS[:3])]
    few_targets = sign("target", "node-7", 8.0, level="node")
    assert causes([*server, few_targets]) == {("server", "oss-1")}
    assert causes([*server, sign("client", "node-7/lustre_client")]) == {
        ("server", "oss-1"),
        ("client", "node-7"),
    }


def test_a_waiting_client_that_retransmits_is_its_network() -> None:
    assert causes([sign("client", "node-3/data"), sign("network", "node-3/tcp", NAN)]) == {
        ("network", "node-3")
    }


def test_a_slight_anomaly_behind_does_not_explain_a_large_one() -> None:
    quota = [
        sign("server", "oss-1", 29.0, level="node"),
        sign("disk", "oss-1/sdb", 1.4, "await"),
        sign("network", "oss-1/server", NAN),
    ]
    where = only(quota)
    assert (where.level, where.component) == ("server", "oss-1")
    assert "await of oss-1/sdb 1.4× too little to explain it" in where.evidence
    assert causes([*waits("OST0001", severity=20.0), sign("server", "OST0001", 1.3)]) == {
        ("network", "oss-1")
    }


def test_a_long_await_that_is_harmless_clears_the_server_too() -> None:
    waiting = replace(PATHS, times={"oss-1": 2.8}, awaits={"oss-1": 2.9})
    assert causes([sign("server", "OST0001", 3.0)], waiting) == set()
    assert causes(waits("OST0001"), waiting) == set()
    assert causes([sign("server", "OST0001", 30.0)], waiting) == {("server", "oss-1")}


def test_unconfirmed_signs_only_explain_confirmed_times() -> None:
    early = sign("disk", "oss-1/sdb", 5.0, confirmed=False)
    assert causes([early]) == set()
    assert causes([early, sign("network", "oss-1/tcp", NAN)]) == {("network", "oss-1")}
    assert causes([early, sign("server", "OST0001", 4.0)]) == {("lun", "oss-1/sdb")}
    assert causes([sign("server", "OST0001", 4.0, confirmed=False)]) == set()


def test_two_slow_disks_of_a_server_are_two_causes() -> None:
    signs = [sign("disk", "oss-1/sdb", 4.0), sign("disk", "oss-1/sdc", 2.0), sign("server", "OST0001", 3.0)]
    found = locate(signs, PATHS)
    assert [found[each.key].component for each in signs] == ["oss-1/sdb", "oss-1/sdc", "oss-1/sdb"]


def test_a_slow_disk_that_explains_nothing_beside_one_that_does_is_its_own_cause() -> None:
    slight = sign("disk", "oss-1/sdc", 1.4)
    signs = [sign("disk", "oss-1/sdb", 20.0), slight, sign("server", "OST0001", 29.0)]
    found = locate(signs, PATHS)
    assert [found[each.key].component for each in signs] == ["oss-1/sdb", "oss-1/sdc", "oss-1/sdb"]
    assert found[slight.key].evidence == "latency of oss-1/sdc 1.4×: the disk"
    same = sign("disk", "oss-1/sdb", 1.4, "r_await")
    assert locate([*signs, same], PATHS)[same.key].component == "oss-1/sdb"


def test_unconfirmed_signs_have_no_cause_themselves() -> None:
    early = sign("target", "node-1/OST0001-osc", confirmed=False)
    controller = sign("disk", "controller-1", level="controller", confirmed=False)
    slow = sign("server", "OST0001")
    assert set(locate([early, slow, controller], PATHS)) == {slow.key}
    assert locate([controller], PATHS) == {}


def test_two_faults_have_a_cause_each() -> None:
    signs = [sign("disk", "oss-1/sdb"), sign("network", "oss-2/tcp", NAN), sign("client", "node-3/c")]
    assert causes(signs) == {("lun", "oss-1/sdb"), ("network", "oss-2"), ("client", "node-3")}


def test_a_controller_explains_what_is_behind_it() -> None:
    signs = [sign("disk", "controller-1", level="controller"), sign("server", "OST0001"), *waits("OST0002")]
    where = only(signs)
    assert (where.level, where.component) == ("controller", "controller-1")


def test_work_inside_without_times_is_the_server() -> None:
    assert causes([sign("inside", "oss-1", NAN, "samples", level="node")]) == {("server", "oss-1")}
    assert causes([sign("inside", "oss-1", NAN, level="node"), sign("disk", "oss-1/sdb")]) == {
        ("lun", "oss-1/sdb")
    }


def test_a_forwarder_that_waits_for_a_slow_target_is_not_the_cause() -> None:
    slow = [
        sign("server", "OST0001", 5.0, "write_latency"),
        sign("target", "node-1/OST0001-osc", 4.0, "write_latency"),
    ]
    passed = sign("forwarder", "node-1/lwfs", NAN, "write_exe_slow")
    where = only([*slow, passed])
    assert (where.level, where.component) == ("server", "oss-1")
    queue = replace(passed, key=("forwarder", "node-1/lwfs", "queue_length"))
    assert only([*slow, queue]).component == "oss-1"


def test_a_forwarder_is_the_cause_where_its_targets_do_not_explain_it() -> None:
    slow = [
        sign("server", "OST0001", 5.0, "write_latency"),
        sign("target", "node-1/OST0001-osc", 4.0, "write_latency"),
    ]
    opens = sign("forwarder", "node-1/lwfs", NAN, "meta_exe_slow")
    of_another = sign("forwarder", "node-2/lwfs", NAN, "write_exe_slow")
    for passed, node in ((opens, "node-1"), (of_another, "node-2")):
        where = locate([*slow, passed], PATHS)[passed.key]
        assert (where.level, where.component, where.place) == ("server", node, "the forwarder")


def test_whole_groups_and_unknown_places_are_not_located() -> None:
    assert (
        causes([sign("disk", "luns", level="group"), sign("", "oss-1/x"), sign("moon", "oss-1/y")]) == set()
    )


def test_hostile_names_stay_on_one_line_and_in_bounds() -> None:
    name = "oss-1/\n\x1b[2J" + "x" * 5000
    where = only([sign("disk", name)])
    assert where.component == where.name == name
    assert where.evidence.isprintable()
    assert len(where.evidence) < 600


def test_the_target_of_odd_devices() -> None:
    assert target_of("node-1/scratch-OST0007-osc") == "scratch-OST0007"
    assert [target_of(name) for name in ("node-1/a", "node-1", "", "/-", "n/-osc")] == [
        "a",
        "",
        "",
        "-",
        "-osc",
    ]


NAMES = st.sampled_from(
    ["oss-1/sdb", "oss-1", "OST0001", "node-1/OST0001-osc", "*/10.0.0.1", "", "/", "*/", "a/b/c"]
)
SIGNS = st.lists(
    st.builds(
        sign,
        place=st.sampled_from([*PLACES, ""]),
        component=NAMES | st.text(max_size=8),
        severity=st.floats(allow_nan=True, allow_infinity=True),
        metric=st.sampled_from(["a", "b"]),
        level=st.sampled_from(["component", "node", "controller", "couplet", "group"]),
        confirmed=st.booleans(),
    ),
    max_size=12,
    unique_by=lambda each: each.key,
)


@given(SIGNS)
def test_any_signs_have_causes_of_known_levels(signs: list[Sign]) -> None:
    found = locate(signs, PATHS)
    assert set(found) <= {each.key for each in signs}
    levels = {"lun", "server", "network", "client", "controller", "couplet"}
    assert {where.level for where in found.values()} <= levels
    assert all(where.evidence.isprintable() for where in found.values())


def test_the_order_of_signs_does_not_matter() -> None:
    signs = [sign("disk", "oss-1/sdb", 4.0), sign("disk", "oss-1/sdc", 4.0), sign("server", "OST0001", 4.0)]
    assert len({tuple(sorted(locate(order, PATHS).items())) for order in map(list, permutations(signs))}) == 1
