"""The parser of all commands: suggestions, and times in the past as values."""

from argparse import REMAINDER

import pytest

from laggard_common.daemon.options import OneLineParser, WrappedHelp


@pytest.fixture
def parser() -> OneLineParser:
    parser = OneLineParser(prog="laggard")
    parser.add_argument("--from", dest="low")
    parser.add_argument("--window")
    parser.add_argument("--by", choices=("user", "project"))
    parser.add_argument("-o", "--output")
    return parser


@pytest.mark.parametrize("text", ["-12h", "-90min", "-2w"])
def test_a_time_in_the_past_is_a_value(parser: OneLineParser, text: str) -> None:
    assert parser.parse_args(["--from", text, "--window", "3"]).low == text


def test_short_options_stay_options(parser: OneLineParser) -> None:
    assert parser.parse_args(["--from", "x", "-ofile"]).output == "file"


def test_arguments_of_another_program_stay_as_they_are() -> None:
    parser = OneLineParser(prog="laggard")
    parser.add_argument("command", nargs=REMAINDER)
    words = ["--", "solver", "--from", "-12h"]
    assert parser.parse_args(words).command in (words, words[1:])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--winow", "3"], "unrecognized arguments: --winow 3, did you mean --window?"),
        (["--form=-12h"], "unrecognized arguments: --form=-12h, did you mean --from?"),
        (["--colour"], "unrecognized arguments: --colour"),
        (["extra"], "unrecognized arguments: extra"),
    ],
)
def test_the_option_that_was_meant(
    parser: OneLineParser, arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        parser.parse_args(arguments)
    assert ended.value.code == 2
    assert capsys.readouterr().err == f"laggard: {said} (see laggard --help)\n"


def test_the_choice_that_was_meant(parser: OneLineParser, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parser.parse_args(["--by", "projct"])
    assert ", did you mean project? (see" in capsys.readouterr().err


def test_a_mistyped_option_is_told_rather_than_that_one_is_missing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    made = OneLineParser(prog="tool")
    made.add_mutually_exclusive_group(required=True).add_argument("--config")
    made.add_argument("file")
    for given, said in (
        (["--confg=x", "f"], "unrecognized arguments: --confg, did you mean --config?"),
        (["--hlep"], "unrecognized arguments: --hlep, did you mean --help?"),
        (["f"], "one of the arguments --config is required"),
        (["--conf", "x"], "the following arguments are required: file"),
    ):
        with pytest.raises(SystemExit):
            made.parse_args(given)
        assert capsys.readouterr().err == f"tool: {said} (see tool --help)\n"


def test_prose_of_the_help_is_as_wide_as_the_terminal_and_commands_stay(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    command = "  laggard train a-folder-with-a-long-name --group-by file"
    told = "A day of ordinary work without a fault\nis what the detectors want."
    parser = OneLineParser(
        prog="laggard",
        description=told,
        epilog=f"examples:\n{command}\n\n{told}",
        formatter_class=WrappedHelp,
    )
    lines = parser.format_help().splitlines()
    assert command in lines
    assert [line for line in lines if len(line) > 40] == [command]
    assert lines.count("A day of ordinary work without a fault") == 2
