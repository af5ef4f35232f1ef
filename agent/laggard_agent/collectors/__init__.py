"""One collector a file: each reads one source of counters of this node."""

from laggard_agent.collectors.interface import Collector, Now
from laggard_agent.settings import AgentSettings, Roots
from laggard_common.clock import Clock


def make_collectors(settings: AgentSettings, roots: Roots, now: Now, clock: Clock) -> list[Collector]:
    """The collectors that are enabled, in the order of the configuration; imports only theirs.

    `now`: nanoseconds since the epoch, the time that readings carry.
    """
    made: list[Collector] = []
    for name in settings.collectors:
        if name == "diskstats":
            from laggard_agent.collectors.diskstats.block_devices import BlockDevices, Choice  # noqa: PLC0415
            from laggard_agent.collectors.diskstats.collector import Diskstats  # noqa: PLC0415

            choice = Choice(settings.diskstats.include, settings.diskstats.exclude)
            made.append(Diskstats(roots.procfs, BlockDevices(roots.sysfs, choice, clock.monotonic_ns), now))
        elif name == "net":
            from laggard_agent.collectors.net.collector import Net  # noqa: PLC0415
            from laggard_agent.collectors.net.destinations import Destinations  # noqa: PLC0415

            net = settings.net
            found = Destinations(net.destinations, net.most_destinations) if net.destinations else None
            own = roots.procfs == Roots().procfs
            made.append(Net(roots.procfs, net.include, net.exclude, now, destinations=found, own=own))
        elif name == "host":
            from laggard_agent.collectors.host.collector import Host  # noqa: PLC0415

            made.append(Host(roots.procfs, now))
        elif name == "lustre":
            from laggard_agent.collectors.lustre.collector import LustreCollector  # noqa: PLC0415
            from laggard_agent.collectors.lustre.lctl import Dump  # noqa: PLC0415
            from laggard_agent.collectors.lustre.param_paths import Trees  # noqa: PLC0415

            trees = Trees(roots.procfs, roots.sysfs, roots.debugfs)
            made.append(
                LustreCollector(
                    trees if roots.lctl_dump is None else Dump(roots.lctl_dump),
                    now,
                    clock.monotonic_ns,
                    job_stats=settings.lustre.job_stats,
                    max_job_entries=settings.lustre.max_job_entries,
                )
            )
        elif name == "gluster":
            from laggard_agent.collectors.gluster.collector import Gluster  # noqa: PLC0415

            gluster = settings.gluster
            made.append(
                Gluster(gluster.directory, now, clock.monotonic_ns, stale_seconds=gluster.stale_seconds)
            )
        elif name == "lwfs":
            from laggard_agent.collectors.lwfs.collector import Lwfs  # noqa: PLC0415

            made.append(Lwfs(settings.lwfs.log, now, clock.monotonic_ns))
        elif name == "infiniband":
            from laggard_agent.collectors.infiniband.collector import Infiniband  # noqa: PLC0415

            hw_counters = settings.infiniband.hw_counters
            made.append(Infiniband(roots.sysfs, now, clock.monotonic_ns, hw_counters=hw_counters))
        elif name == "fnprofile":
            from laggard_agent.collectors.fnprofile.collector import Fnprofile  # noqa: PLC0415

            sysfs = roots.sysfs if roots.procfs == Roots().procfs else None
            made.append(Fnprofile(settings.fnprofile, roots.procfs, sysfs, now, clock.monotonic_ns))
        elif name == "fntrace":
            from laggard_agent.collectors.fntrace.collector import Fntrace  # noqa: PLC0415

            fntrace = settings.fntrace
            made.append(
                Fntrace(
                    fntrace.directory,
                    roots.procfs,
                    now,
                    clock.monotonic_ns,
                    max_functions=fntrace.max_functions,
                )
            )
    return made
