"""Sessions of Spark, for statistics that outgrow one machine."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from typing import Any

from laggard_common.errors import ServiceError

_JAVA_SECONDS = 30


def open_session(name: str, master: str | None, folder: str) -> Any:
    """A session of Spark, of this machine or of the cluster of a master URL, with its files in `folder`.

    Raises ServiceError: no Java runtime or one that is too old, or no such master.
    """
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        raise ServiceError("Spark needs a Java runtime: apt install default-jre-headless")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    if master is None:
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.ansi.enabled": "true",
        "spark.sql.shuffle.partitions": "8",
        "spark.driver.bindAddress": "127.0.0.1" if master is None else "0.0.0.0",  # noqa: S104
        **({"spark.driver.host": "127.0.0.1"} if master is None else {}),  # the host's name may not resolve
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.warehouse.dir": folder,
        "spark.local.dir": folder,
    }
    builder = SparkSession.builder.appName(name).master(master or "local[*]")
    for key, value in settings.items():
        builder = builder.config(key, value)
    try:
        return builder.getOrCreate()
    except (PySparkException, Py4JError, OSError) as exc:
        raise ServiceError(f"Spark does not start: {first_lines(exc)}") from exc


def close_session(session: Any) -> None:
    """Ends a session and its Java process."""
    from pyspark import SparkContext

    gateway = SparkContext._gateway
    session.stop()
    if gateway is None:
        return
    gateway.shutdown()
    SparkContext._gateway = SparkContext._jvm = None
    java = getattr(gateway, "proc", None)
    if java is not None:
        java.stdin.close()
        try:
            java.wait(_JAVA_SECONDS)
        except subprocess.TimeoutExpired:
            java.kill()
            java.wait()


def first_lines(error: Exception) -> str:
    """The first lines of an engine's error, as one."""
    lines: Iterable[str] = (line.strip() for line in str(error).splitlines())
    return " ".join([line for line in lines if line][:2])[:500] or type(error).__name__
