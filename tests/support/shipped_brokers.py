"""The brokers as they are shipped, with certificates of the shipped script, in folders of our own."""

import os
import re
import shutil
import time
from datetime import UTC, datetime
from pathlib import Path

from laggard_common.mqtt.settings import MqttSettings
from tests.support.ports import free_port
from tests.support.processes import run_command

DEPLOY = Path(__file__).parents[2] / "deploy"
AGGREGATOR, BROKER = "laggard-aggregator", "laggard-broker"
_LONG_AGO = ("20200101000000Z", "20200201000000Z")


class Authority:
    """A site's certificates in `folder`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def begin(self, host: str, nodes: list[str]) -> None:
        """Makes the authority and everybody's certificates."""
        self.run("init", "site")
        self.run("broker", host, "localhost", "127.0.0.1")
        self.run("aggregator")
        self.run("node", *nodes)

    def run(self, command: str, *arguments: str) -> str:
        """Runs deploy/pki/laggard-ca; what it prints."""
        script = (str(DEPLOY / "pki" / "laggard-ca"), command, str(self.folder))
        done = run_command([*script, *arguments])
        return done.stdout

    def client(self, host: str, port: int, name: str) -> MqttSettings:
        """What a client of that name connects with."""
        issued = self.folder / "issued"
        files = (self.folder / "ca.pem", issued / f"{name}.pem", issued / f"{name}.key")
        return MqttSettings(host, port, ca_file=files[0], cert_file=files[1], key_file=files[2])

    def shorten(self, name: str, seconds: float) -> None:
        """Puts a certificate that is valid for so long in the place of that name's, until `renew`."""
        issued = self.folder / "issued" / f"{name}.pem"
        extensions = "server" if name == BROKER else "client"
        request, old = self.folder / f"{name}.csr", self.folder / f"{name}.old"
        key = issued.with_suffix(".key")
        _openssl("req", "-new", "-key", key, "-subj", f"/CN={name}", "-out", request)
        config = ("-config", self.folder / "openssl.cnf", "-extensions", extensions)
        end = datetime.fromtimestamp(time.time() + seconds, UTC).strftime("%Y%m%d%H%M%SZ")
        dates = ("-startdate", _LONG_AGO[0], "-enddate", end)
        _openssl("ca", "-batch", "-notext", *config, *dates, "-in", request, "-out", old)
        issued.rename(issued.with_suffix(".good"))
        old.rename(issued)

    def renew(self, name: str) -> None:
        """Puts a valid certificate in its place."""
        issued = self.folder / "issued" / f"{name}.pem"
        issued.with_suffix(".good").rename(issued)

    def expire_list(self) -> None:
        """Lets the list of revoked certificates run out, until `run("crl")`."""
        dates = ("-crl_lastupdate", _LONG_AGO[0], "-crl_nextupdate", _LONG_AGO[1])
        config = ("-config", self.folder / "openssl.cnf")
        _openssl("ca", "-gencrl", *config, *dates, "-out", self.folder / "crl.pem")


def mosquitto(
    folder: Path, authority: Authority, host: str, port: int, onlooker: str = "", site: str = "+"
) -> list[str]:
    """The command for mosquitto with the shipped configuration; `onlooker` may read everything."""
    acl = (DEPLOY / "mosquitto" / "acl").read_text().replace("laggard/1/+/", f"laggard/1/{site}/")
    more = f"\nuser {onlooker}\ntopic read laggard/#\n" if onlooker else ""
    (folder / "acl").write_text(acl + more)
    persistence = folder / "persistence"
    persistence.mkdir(exist_ok=True)
    text = _replaced(
        DEPLOY / "mosquitto" / "mosquitto.conf",
        {
            "listener 8883": f"listener {port} {host}",
            "/etc/mosquitto/certs/broker": f"{authority.folder}/issued/laggard-broker",
            "/etc/mosquitto/certs": str(authority.folder),
            "/etc/mosquitto/acl": f"{folder}/acl",
            "/var/lib/mosquitto/": f"{persistence}/",
        },
    )
    # Root would become another user, who may not read this folder.
    (folder / "mosquitto.conf").write_text(f"{text}user root\n" if os.getuid() == 0 else text)
    return [program("mosquitto"), "-c", str(folder / "mosquitto.conf")]


def nats(folder: Path, authority: Authority, host: str, port: int, onlooker: str = "") -> list[str]:
    """The command for a NATS server with the shipped configuration, without the cluster."""
    text = _replaced(
        DEPLOY / "nats" / "nats-server.conf",
        {
            "port: 8883": f"listen: {host}:{port}",
            "listen: 127.0.0.1:4222": f"listen: {host}:{free_port()}",
            "/etc/nats/certs/broker": f"{authority.folder}/issued/laggard-broker",
            "/etc/nats/certs": str(authority.folder),
            "/var/lib/nats": f"{folder}/jetstream",
        },
    )
    (folder / "nats-server.conf").write_text(re.sub(r"(?ms)^cluster \{.*?^\}\n", "", text))
    users = authority.run("nats")
    if onlooker:
        reader = '{ subscribe: ["laggard.>", "$MQTT.sub.>"] }'
        users = re.sub(f'(user: "CN={onlooker}", permissions:) .*', rf"\1 {reader} }}", users)
    (folder / "users.conf").write_text(users)
    return [program("nats-server"), "-c", str(folder / "nats-server.conf")]


def program(name: str) -> str:
    """Where it is. Ends the bench when it is nowhere."""
    found = shutil.which(name, path="/usr/sbin:/usr/bin:/usr/local/sbin:/usr/local/bin")
    if found is None:
        raise SystemExit(f"needs {name}")
    return found


def _replaced(shipped: Path, changes: dict[str, str]) -> str:
    text = shipped.read_text()
    for there, here in changes.items():
        if there not in text:
            raise SystemExit(f"{shipped} has no {there!r} any more")
        text = text.replace(there, here)
    return text


def _openssl(*arguments: object) -> None:
    run_command(["openssl", *map(str, arguments)])
