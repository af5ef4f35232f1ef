from pathlib import Path

import pytest

from laggard_aggregator.cli.daemon import main

URL = "https://example.org/hook"


def check(tmp_path: Path, webhook: str, capsys: pytest.CaptureFixture[str]) -> str:
    """The problems that --check-config prints, one a line."""
    config = tmp_path / "aggregator.toml"
    config.write_text(f"[webhook]\n{webhook}")
    code = main(["--config", str(config), "--check-config"])
    error = capsys.readouterr().err.replace(str(tmp_path), "")
    assert code == (2 if error else 0)
    return error.replace("laggard-aggregator: /aggregator.toml: ", "").rstrip("\n")


@pytest.mark.parametrize("url", [URL, "http://10.0.0.1:8080", "https://[::1]:8443/a?b=c&d=%20", "HTTPS://x/"])
def test_addresses(url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert check(tmp_path, f'url = "{url}"\n', capsys) == ""


@pytest.mark.parametrize(
    "url",
    [
        "example.org",
        "ftp://example.org",
        "file:///etc/passwd",
        "https://",
        "https://:443/",
        "https://a:99999/",
        "https://a:0/",
        "https://[::1/",
        "https://a/ b",
        "https://a/\\r\\nX: y",
        "https://a/#b",
        "https://ä.example/",
        "https://a/" + "x" * 3000,
    ],
)
def test_what_is_no_address(url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    expected = "webhook.url: expected an address such as https://example.org/hook"
    assert check(tmp_path, f'url = "{url}"\n', capsys) == expected


@pytest.mark.parametrize(
    ("webhook", "problem"),
    [
        ("", "webhook.url: expected either url or url_file"),
        (f'url = "{URL}"\nurl_file = "x"\n', "webhook.url: expected either url or url_file"),
        (
            'url = "https://user:secret@example.org/"\n',
            "webhook.url: expected an address without user and password",
        ),
        (
            f'url = "{URL}"\ntemplate = "teams"\n',
            "webhook.template: expected one of json, slack, mattermost, got 'teams'",
        ),
        (f'url = "{URL}"\ntimeout_seconds = 0\n', "webhook.timeout_seconds: expected 0.1-300, got 0.0"),
        (f'url = "{URL}"\nmost_per_hour = 0\n', "webhook.most_per_hour: expected 1-10000, got 0"),
        (f'url = "{URL}"\nretries = 3\n', "webhook.retries: unknown key"),
        ('url = "http://example.org"\nca_file = "x"\n', "webhook.ca_file: is for https"),
        (
            f'url = "{URL}"\nca_file = "/none.pem"\n',
            "webhook.ca_file: /none.pem: not usable: No such file or directory",
        ),
    ],
)
def test_what_is_wrong_is_one_line(
    webhook: str, problem: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = check(tmp_path, webhook, capsys)
    assert said.partition(": not usable")[0] == problem.partition(": not usable")[0]
    assert "secret" not in said


def secret(tmp_path: Path, name: str, content: str, mode: int = 0o600) -> Path:
    path = tmp_path / name
    path.write_text(content)
    path.chmod(mode)
    return path


def test_the_files_are_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for key, good in (("url_file", URL), ("bearer_token_file", "s3cret"), ("headers_file", "X-Key: s3cret")):
        url = "" if key == "url_file" else f'url = "{URL}"\n'
        table = f'{url}{key} = "{tmp_path}/{key}"\n'
        assert check(tmp_path, table, capsys) == f"webhook.{key}: /{key}: No such file or directory"
        secret(tmp_path, key, good + "\n", 0o644)
        assert "may be read or written by everyone" in check(tmp_path, table, capsys)
        secret(tmp_path, key, "\n")
        assert check(tmp_path, table, capsys) == f"webhook.{key}: /{key}: is empty"
        secret(tmp_path, key, good + "\n")
        assert check(tmp_path, table, capsys) == ""
        secret(tmp_path, key, "s3cret \x07 s3cret\n")
        assert f"webhook.{key}: /{key}: " in (said := check(tmp_path, table, capsys))
        assert "s3cret" not in said
        (tmp_path / key).unlink()


@pytest.mark.parametrize("line", ["Host: x", "content-length: 3", "X Y: z", "X", "X: \u00e9", ": x"])
def test_headers_that_are_refused(line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = secret(tmp_path, "headers", f"X-Good: 1\n{line}\n")
    said = check(tmp_path, f'url = "{URL}"\nheaders_file = "{path}"\n', capsys)
    assert said.startswith("webhook.headers_file: /headers: line 2: expected at most 20 lines `Name: value`")


def test_a_token_travels_encrypted_or_on_this_host(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = secret(tmp_path, "token", "s3cret\n")
    table = f'bearer_token_file = "{path}"\nurl = '
    problem = "webhook.url: a token or header is only sent encrypted: expected https"
    assert check(tmp_path, f'{table}"http://example.org/"\n', capsys) == problem
    assert check(tmp_path, f'{table}"http://127.0.0.1:8080/"\n', capsys) == ""
    assert check(tmp_path, f'{table}"{URL}"\n', capsys) == ""
