"""The goldens by the path of their file, each with what makes it with the present code."""

import asyncio
import json
import platform
import re
import tempfile
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import scipy
import zstandard

from tests.golden import entry, formats, jobs, site
from tests.golden.before import continued
from tests.golden.entry import Component, Field, FieldKind, FieldType, codec, trace_codec, trace_records, wire

FOLDER = Path(__file__).parent / "data"
FIXTURES = Path(__file__).parents[1] / "fixtures"
RUN_BATCHES = 30
CSV_OPTIONS = (
    *("--time-column", "ts", "--component-column", "disk_id", "--metric", "latency", "--load", "throughput"),
    *("--group-by", "file", "--interval", "15", "--window", "20", "--shift", "20"),
)
SUBCOMMANDS = (
    "demo",
    "diagnose",
    "init",
    "train",
    "archive",
    "layers",
    "jobs",
    "job",
    "report",
    "top",
    "status",
    "silence",
    "drain",
    "comment",
    "replaced",
    "forget",
)
HELP = {
    "laggard": ("laggard", "--help"),
    "laggard-agent": ("laggard-agent", "--help"),
    "laggard-aggregator": ("laggard-aggregator", "--help"),
    **{f"laggard-{name}": ("laggard", name, "--help") for name in SUBCOMMANDS},
    "laggard-layers-record": ("laggard", "layers", "record", "--help"),
    "laggard-jobs-phases": ("laggard", "jobs", "phases", "--help"),
    "laggard-jobs-compare": ("laggard", "jobs", "compare", "--help"),
    "laggard-jobs-import": ("laggard", "jobs", "import", "--help"),
    "laggard-layers-send": ("laggard", "layers", "send", "--help"),
    "laggard-layers-received": ("laggard", "layers", "received", "--help"),
}


def machine() -> dict[str, Any]:
    """What may change the last bit of a number, or how argparse breaks a line."""
    return {
        "python": ".".join(platform.python_version_tuple()[:2]),
        "numpy": np.__version__,
        "scipy": scipy.__version__,
        "simd": np.show_config(mode="dicts")["SIMD Extensions"]["found"],
        "machine": platform.machine(),
        "cpu": _cpu_vendor(),
    }


def _cpu_vendor() -> str:
    """The maker of the CPU, by which the C library chooses its functions; empty where the kernel has none."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("vendor_id")), "")


def all_of_them() -> dict[str, Callable[[], str]]:
    """By file name below `data`, what makes its text."""
    return {
        "machine.json": lambda: formats.text(machine()),
        "wire.json": wire_messages,
        "run/journal.json": lambda: run()["journal"],
        "run/snapshot.json": lambda: run()["snapshot"],
        "run/archive.json": lambda: run()["archive"],
        "run/columns.json": lambda: run()["columns"],
        "run/api.json": lambda: run()["api"],
        "run/exposition.txt": lambda: run()["exposition"],
        "run/acknowledged.json": lambda: run()["acknowledged"],
        "run/orders.txt": lambda: run()["orders"],
        "agent.json": agent_run,
        "once.json": once,
        "config_errors.json": config_errors,
        "diagnose/csv.jsonl": lambda: offline()["csv"],
        "diagnose/csv_cdf.jsonl": lambda: offline()["cdf"],
        "diagnose/thresholds.toml": lambda: offline()["thresholds"],
        "diagnose/recording.jsonl": recording,
        **jobs.all_of_them(),
        **{f"help/{name}.txt": partial(help_of, *words) for name, words in HELP.items()},
    }


def help_of(name: str, *arguments: str) -> str:
    """What a command says of itself."""
    code, out, err = entry.command(name, *arguments)
    assert (code, err) == (0, "")
    return out


# The wire


def wire_messages() -> str:
    """Every kind of message from fixed values, as hexadecimal; compressed payloads as they are unpacked.

    The bytes of zstd are another version's business, so a message with codec 1 is shown with what it holds.
    """
    schema = entry.Schema(
        *("oss-1", "diskstats", bytes(range(16)), 3, 10**9, 10),
        (
            Field("rd_ios"),
            Field("in_flight", FieldKind.GAUGE),
            Field("await_le_1", FieldKind.HISTOGRAM, "ms", FieldType.F64),
            Field("offset", FieldKind.GAUGE, "us", FieldType.I64),
        ),
        (
            Component("wwn-0x5000", "sda", (("model", "ST8000"), ("rotational", "1"), ("scope", "site"))),
            Component("wwn-ü", "sdb"),
        ),
    )
    found: dict[str, Any] = {"schema": wire.encode_schema(schema).hex()}
    rows = [[(100 + 3 * t, 2**64 - 3 + t, 1.5 * t, None), (7, 0, -0.5, -12 + t)] for t in range(4)]
    for number in (codec.RAW, codec.DELTA_ZSTD):
        payload = codec.Encoder(number).encode([0, 5], rows, [150, -3, 0, 2**31 - 1])
        batch = wire.Envelope(
            *(
                wire.Kind.COUNTERS,
                "oss-1",
                "diskstats",
                bytes(range(16)),
                7,
                3,
                1_763_650_000 * 10**9,
                10**9,
                4,
            ),
            number,
            payload,
        )
        found[f"batch of codec {number}"] = _shown(wire.encode_envelope(batch))
    same = [site.envelope(site.schema("oss-1"), seq, codec_number=codec.RAW) for seq in (3, 4, 5)]
    gap = site.envelope(site.schema("oss-1"), 8)
    found["coalesced"] = [_shown(message) for message in entry.coalesced([*same, gap])]
    found["status"] = wire.encode_envelope(site.status("oss-2", 3)).hex()
    found["last will"] = wire.encode_envelope(
        site.without(
            site.status("oss-2", 0),
            payload=wire.encode_state({"state": "down", "role": "storage", "version": "0.1.0"}),
        )
    ).hex()
    acks = [
        wire.Ack(bytes(16), "diskstats", ((0, 5), (7, 7), (9, 2**40))),
        wire.Ack(b"p" * 16, "net", ()),
    ]
    found["acknowledgement"] = wire.encode_ack(acks).hex()
    records = [
        trace_records.Folded(
            "cn-17", "write", "4121:17", 0, 65536, 3, 1_763_650_000 * 10**9, 1_763_650_000_200_000_000, "/o"
        ),
        trace_records.Folded(
            "cn-17", "close", "4121:17", None, 0, 1, 1_763_650_000_300_000_000, 1_763_650_000_300_000_000
        ),
    ]
    found["trace records"] = trace_codec.EventEncoder(codec.RAW).encode(records).hex()
    found["topics"] = [
        entry.topics.data_topic("site", "storage", "oss-1", "diskstats"),
        entry.topics.schema_topic("site", "storage", "oss-1", "diskstats"),
        entry.topics.status_topic("site", "storage", "oss-1"),
        entry.topics.ack_topic("site", "oss-1"),
    ]
    return formats.text(found)


def _shown(message: bytes) -> dict[str, Any]:
    """A batch: its bytes where nothing is compressed, else its envelope and what its payload holds."""
    e = wire.decode_envelope(message)
    if e.codec == codec.RAW:
        return {"bytes": message.hex()}
    head, payload = b"", e.payload
    if e.kind == wire.Kind.JOINED:
        at = 2 + 2 * int.from_bytes(payload[:2], "little")
        head, payload = payload[:at], payload[at:]
    unpacked = zstandard.ZstdDecompressor().decompress(payload)
    return {"empty": wire.encode_envelope(site.without(e, payload=head)).hex(), "payload": unpacked.hex()}


# A run of the aggregator


@cache
def run() -> dict[str, str]:
    """What is left, and was answered, of an aggregator that saw an episode begin and end."""
    with tempfile.TemporaryDirectory() as folder:
        return asyncio.run(_run(Path(folder)))


async def _run(folder: Path) -> dict[str, str]:
    answers, said = {}, []
    clock = site.HandClock(site.START)
    async with site.broker() as broker:
        path = site.config(folder, broker.port, "snapshot_seconds = 86400.0\n")
        async with site.live(path, clock, broker) as live:

            async def between(seq: int) -> None:
                if seq == 12:
                    answers["while the alarm stands"] = await continued.answers(live)
                    answers["wrong questions"] = {
                        where: await asyncio.to_thread((await live.answers()).text, where)
                        for where in (
                            "/api/v1/components/luns/none",
                            "/api/v1/components/none/oss-1",
                            "/readyz",
                        )
                    }
                if seq == 14:
                    for order in continued.ORDERS:
                        words = (*order, "--state", str(folder / "state"))
                        said.append(" ".join(order) + "\n  " + await asyncio.to_thread(entry.laggard, *words))
                    await live.until(lambda _: continued.all_acknowledged(broker, 12))
                    answers["with decisions"] = await continued.answers(live)

            await live.play(range(RUN_BATCHES), between)
            await live.until(lambda _: continued.all_acknowledged(broker, RUN_BATCHES - 1))
            answers["at the end"] = await continued.answers(live)
            exposed = await asyncio.to_thread((await live.answers()).text, "/metrics")
        acknowledged = site.acknowledged(broker)
    tables = formats.tables(folder / "archive")
    return {
        "journal": formats.text(formats.journal(folder / "state")),
        "snapshot": formats.text(formats.snapshot(formats.newest_snapshot(folder / "state"))),
        "archive": formats.text({name: _rows(table) for name, table in tables.items()}),
        "columns": formats.text({name: formats.columns(table) for name, table in tables.items()}),
        "api": formats.text(answers),
        "exposition": _steady(exposed),
        "acknowledged": formats.text(acknowledged),
        "orders": "".join(said),
    }


def _rows(table: Any) -> list[Any]:
    """All rows of a table; of counters those of two servers, and a digest of all."""
    rows = formats.rows(table)
    if "place" not in table.column_names or "node" not in table.column_names:
        return rows
    whole = formats.digest(json.dumps(rows).encode())
    some = [row for row in rows if row["node"] in ("oss-5", "oss-6") and row["seq"] in (0, 6, 9)]
    return [{"rows": len(rows), "sha256": whole}, *some]


def _steady(exposed: str) -> str:
    """An exposition without the process's own metrics, and without the values that no clock of ours says."""
    lines = [line for line in exposed.splitlines() if "process_" not in line]
    text = "\n".join(lines) + "\n"
    text = re.sub(r'version="[^"]*"', 'version="VERSION"', text)
    sizes = ("laggard_journal_bytes", "laggard_snapshot_bytes")
    for name in (*sizes, "laggard_window_lag_most_seconds", "laggard_archive_lag_seconds"):
        text = re.sub(rf"^{name} .*$", f"{name} VALUE", text, flags=re.MULTILINE)
    return text


# The agent


def agent_run() -> str:
    """What a real agent publishes over a fake /proc: topics, schema, and the keys of its status."""
    with tempfile.TemporaryDirectory() as folder:
        return asyncio.run(_agent_run(Path(folder)))


async def _agent_run(folder: Path) -> str:
    async with site.broker() as broker:
        path, procfs = continued.agent_files(folder, broker.port)
        stop = asyncio.Event()
        task = asyncio.create_task(entry.agent(path, procfs).run(stop))
        await broker.until(lambda: len(continued.came(broker)) >= 3)
        stop.set()
        await task
        kinds: dict[str, Any] = {}
        for m in broker.messages:
            kinds.setdefault(m.topic, {"qos": m.qos, "retain": m.retain})
        schema = next(wire.decode_schema(m.payload) for m in broker.messages if "/schema/" in m.topic)
        statuses = [wire.decode_envelope(m.payload) for m in broker.messages if m.topic.endswith("/status")]
        states = [wire.decode_state(e.payload) for e in statuses]
        batch = next(iter(continued.came(broker).values()))
        clients = [name for name, _, _ in broker.logins]
    said = {key: type(value).__name__ for key, value in states[-1].items()}
    collectors = states[-1]["collectors"]
    return formats.text(
        {
            "topics": dict(sorted(kinds.items())),
            "client": clients,
            "states": [states[0]["state"], states[-1]["state"]],
            "status": said,
            "collector": {k: type(v).__name__ for k, v in collectors["diskstats"].items()},
            "batch": {"source": batch.source, "dt_ns": batch.dt_ns, "codec": batch.codec},
            "schema": [f"{schema.interval_ns} {schema.batch_ticks} epoch {schema.epoch}"],
            "fields": [[f.name, int(f.kind), f.unit, int(f.type)] for f in schema.fields],
            "components": [[c.id, c.name, dict(c.labels)] for c in schema.components],
        }
    )


def once() -> str:
    """`laggard-agent --once` over copied trees, but for the times."""
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        _, procfs = continued.agent_files(Path(folder), 1)
        lctl = str(FIXTURES / "lustre" / "client-2.17.lctl")
        for name, words in {
            "diskstats": ("--collectors", "diskstats", "--procfs", str(procfs)),
            "lustre": ("--collectors", "lustre", "--lctl-dump", lctl),
        }.items():
            code, out, err = entry.command("laggard-agent", "--once", *words)
            assert (code, err) == (0, "")
            lines = [json.loads(line) for line in out.splitlines()]
            found[name] = [{k: v for k, v in each.items() if k not in ("time", "node")} for each in lines]
    return formats.text(found)


# Configuration

WRONG: dict[str, dict[str, str]] = {
    "laggard-agent": {
        "syntax": "site = ",
        "unknown key": "nod = 'oss-1'\n[mqtt]\nporto = 1\n[disk]\n",
        "types": "node = 1\ninterval_seconds = 'often'\n[spool]\nmax_bytes = 1.5\n",
        "ranges": "interval_seconds = 0\nbatch_samples = 0\n[mqtt]\nport = 70000\n[spool]\nmax_bytes = 1\n",
        "names": "site = 'a/b'\nnode = 'oss+1'\nrole = 'disk'\ncollectors = ['net', 'net', 'nvme']\n",
        "expressions": "[diskstats]\ninclude = ['(']\n[net]\ndestinations = ['10.0.0.0/40']\n",
        "acknowledge": "[spool]\nacknowledge = 'nobody'\n",
        "no file": "[mqtt]\nca_file = '/nonexistent/ca.pem'\n",
        "password alone": "[mqtt]\npassword_file = '/nonexistent/password'\n",
    },
    "laggard-aggregator": {
        "syntax": "[mqtt\n",
        "unknown keys": "sight = 'x'\n[detect]\nwindow = 3\n[webb]\n",
        "types": "site = 1\n[mqtt]\nport = '1883'\n[detect]\nconfirm = true\n",
        "ranges": "[mqtt]\nport = 0\nqueue_messages = 1\n[detect]\ninterval_seconds = 0\nconfirm = 101\n",
        "windows": "[detect]\nwindow_samples = 10\nshift_samples = 11\n",
        "detector": "[detect]\ndetector = 'oracle'\n",
        "thresholds": "[detect]\ndetector = 'cdf'\n",
        "groups": "[[group]]\nsource = 'none'\n[[group]]\nmetrics = ['speed']\n[[group]]\nmetrics = []\n",
        "group twice": "[[group]]\nname = 'a'\n[[group]]\nname = 'a'\n",
        "components": "[[group]]\nname = 'a'\ncomponents = '('\n",
        "topology": "[[topology]]\nnode = 'a'\ncomponents = 'b'\n[[topology]]\nnode = 'c'\ncouplet = '\\2'\n",
        "embedded": "[mqtt]\nembedded = true\nhost = '0.0.0.0'\nusername = 'u'\n",
        "topics": "[mqtt]\ntopics = ['other/#', 'laggard/1/#', 'laggard/1/#']\n",
        "http": "[http]\nlisten = 'everywhere'\nnodes = ['a', 'a']\n",
        "public": "[http]\nlisten = '0.0.0.0:9464'\ncert_file = '/nonexistent/http.pem'\n",
        "mail": "[mail]\nserver = ''\nsender = 'nobody'\nrecipients = []\ntls = 'maybe'\n",
        "mail misses": "[mail]\nserver = 'mail.example.org'\n",
        "archive": "[archive]\nraw_days = 0\nmax_bytes = 1\n",
        "state": "[state]\nsnapshot_seconds = 0\nforget_days = 0\n",
        "peak": "[[peak]]\ncomponent = '('\nmetric = ''\npeak = 0\nbelow = 2\n",
        "standby": "[standby]\nlease_seconds = 0\n",
        "no file": "[mqtt]\nca_file = '/nonexistent/ca.pem'\n",
    },
}
OPTIONS: dict[str, tuple[str, ...]] = {
    "agent without anything": ("laggard-agent",),
    "agent with an unknown option": ("laggard-agent", "--nothing"),
    "agent with once and dump": ("laggard-agent", "--once", "--dump", "/nonexistent"),
    "agent with unknown collectors": ("laggard-agent", "--once", "--collectors", "nvme,diskstats,x"),
    "agent with collectors alone": ("laggard-agent", "--config", "FILE", "--collectors", "net"),
    "agent without a file": ("laggard-agent", "--config", "/nonexistent/agent.toml"),
    "agent with no such procfs": ("laggard-agent", "--once", "--procfs", "/nonexistent"),
    "aggregator without anything": ("laggard-aggregator",),
    "aggregator without a file": ("laggard-aggregator", "--config", "/nonexistent/aggregator.toml"),
    "aggregator with a token alone": ("laggard-aggregator", "--config", "FILE", "--token"),
    "aggregator without mail": ("laggard-aggregator", "--config", "FILE", "--test-mail"),
    "laggard without anything": ("laggard",),
    "laggard with an unknown command": ("laggard", "cure"),
    "diagnose without input": ("laggard", "diagnose"),
    "diagnose of no file": ("laggard", "diagnose", "/nonexistent.csv"),
    "diagnose with gaps": ("laggard", "diagnose", "x.csv", "--window", "3", "--shift", "4"),
    "diagnose with cdf alone": ("laggard", "diagnose", "x.csv", "--detector", "cdf"),
    "diagnose with bad numbers": ("laggard", "diagnose", "x.csv", "--interval", "fast"),
    "silence of nothing": ("laggard", "silence"),
    "silence for ever": ("laggard", "silence", "oss-1", "--for", "ever"),
    "silence without an aggregator": ("laggard", "silence", "oss-1", "--state", "/nonexistent"),
    "status without an aggregator": ("laggard", "status", "--url", "http://127.0.0.1:9"),
    "status of no address": ("laggard", "status", "--url", "ftp://x"),
}


def config_errors() -> str:
    """Exit code and standard error of files and options that are wrong."""
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "file.toml"
        for name, cases in WRONG.items():
            for case, text in cases.items():
                path.write_text(text)
                code, out, err = entry.command(name, "--config", str(path), "--check-config")
                found[f"{name}: {case}"] = [code, *(out + err.replace(str(path), "FILE")).splitlines()]
        path.write_text("")
        for case, words in OPTIONS.items():
            code, out, err = entry.command(*(str(path) if word == "FILE" else word for word in words))
            found[case] = [code, *(out + err.replace(str(path), "FILE")).splitlines()]
    return formats.text(found)


# Recorded data


def csv(name: str, *, slow: str) -> str:
    """Two and a half hours of eight drives, one of them twice as slow in the second half."""
    lines = ["ts,disk_id,throughput,latency"]
    for drive in range(1, 9):
        for sample in range(600):
            common = 90 + site.noise(name, sample) // 3
            latency = common + site.noise(name, drive, sample) / 4
            if f"disk{drive}" == slow and sample >= 300:
                latency *= 2
            load = 1e6 + 1e4 * site.noise("load", drive, sample)
            lines.append(f"{1_800_000_000 + 15 * (sample + 1)},disk{drive},{load:.1f},{latency:.2f}")
    return "\n".join(lines) + "\n"


@cache
def offline() -> dict[str, str]:
    """`laggard diagnose` and `laggard train` over CSV files."""
    with tempfile.TemporaryDirectory() as folder:
        one, two, healthy = (Path(folder) / f"{name}.csv" for name in ("host_1", "host_2", "healthy"))
        one.write_text(csv("host_1", slow="disk3"))
        two.write_text(csv("host_2", slow=""))
        (Path(folder) / "training").mkdir()
        healthy = Path(folder) / "training" / "host_1.csv"
        healthy.write_text(csv("healthy", slow=""))
        trained = Path(folder) / "thresholds.toml"
        entry.laggard("train", str(healthy), *CSV_OPTIONS, "-o", str(trained))
        as_json = ("--windows", "--json")
        cdf = ("--detector", "cdf", "--thresholds", str(trained))
        return {
            "csv": entry.laggard("diagnose", str(one), str(two), *CSV_OPTIONS, *as_json),
            "cdf": entry.laggard("diagnose", str(one), *CSV_OPTIONS, *cdf, "--json"),
            "thresholds": re.sub(r'trained = "[^"]*"', 'trained = "TIME"', trained.read_text()),
        }


def recording() -> str:
    """`laggard diagnose` of the demo's recording as sysstat saw it; needs sadf."""
    path = str(FIXTURES / "demo" / "recording.sa.xz")
    options = ("--interval", "1", "--window", "60", "--shift", "30")
    return entry.laggard("diagnose", path, *options, "--json")
