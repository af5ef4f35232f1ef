"""Modules that a daemon without TLS does not load until it needs them."""

import sys

from laggard_agent.lazy_imports import UNTIL_NEEDED
from tests.support.processes import run_command


def _python(code: str) -> list[str]:
    done = run_command([sys.executable, "-c", code])
    return done.stdout.split()


def test_an_agent_without_tls_loads_none_of_them() -> None:
    loaded = _python(
        "import sys\n"
        "from laggard_agent.lazy_imports import postpone\n"
        "postpone()\n"
        "import laggard_agent.cli, laggard_agent.app, laggard_agent.collectors.diskstats.collector\n"
        "from laggard_common.mqtt.settings import MqttSettings, client_arguments\n"
        "client_arguments(MqttSettings())\n"
        "print(*(name for name, module in sys.modules.items() if getattr(module, '__file__', None)))"
    )
    assert "laggard_agent.cli" in loaded
    assert not {*UNTIL_NEEDED, "_ssl", "_hashlib", "http.client", "email", "importlib.metadata"} & set(loaded)


def test_a_reset_connection_loads_no_openssl() -> None:
    said = _python(
        "from laggard_agent.lazy_imports import postpone\n"
        "postpone()\n"
        "import asyncio, ssl, sys\n"
        "try:\n"
        "    raise ConnectionResetError\n"
        "except ssl.SSLWantReadError:\n"
        "    print('caught')\n"
        "except ConnectionResetError:\n"
        "    print('_ssl' in sys.modules)"
    )
    assert said == ["False"]


def test_a_stand_in_becomes_the_module_when_a_name_of_it_is_asked_for() -> None:
    said = _python(
        "from laggard_agent.lazy_imports import postpone\n"
        "postpone()\n"
        "import asyncio.base_events, ssl, sys\n"
        "context = ssl.create_default_context()\n"
        "from ssl import SSLContext\n"
        "import ssl as again\n"
        "print(isinstance(context, SSLContext), ssl.SSLContext is SSLContext, again is sys.modules['ssl'],\n"
        "    asyncio.base_events.ssl.SSLContext is SSLContext,\n"
        "    issubclass(asyncio.base_events.sslproto.SSLProtocol, asyncio.BufferedProtocol),\n"
        "    hasattr(ssl, 'no_such_name'))"
    )
    assert said == ["True"] * 5 + ["False"]


def test_what_is_loaded_already_stays_itself() -> None:
    code = (
        "import ssl\nfrom laggard_agent.lazy_imports import postpone\npostpone()\n"
        "import sys\nprint(sys.modules['ssl'] is ssl)"
    )
    assert _python(code) == ["True"]
