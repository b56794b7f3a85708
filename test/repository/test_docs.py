"""The pages say what is so: links, commands, files and parameters exist, every drop reason and warning has an entry.

The lists come from the code: who adds a warning adds its remedy to docs/troubleshooting.md, or this fails.
"""

import argparse
import functools
import re
from dataclasses import fields
from itertools import pairwise
from pathlib import Path

import pytest
import yaml
from docs_text import (
    PAGES,
    ROOT,
    command_lines,
    fenced,
    one_line,
    slugs,
    spans,
    template,
    warnings_in_code,
)

from gp_mapping.commands import COMMANDS, add_arguments
from gp_mapping.intake import DropReason
from gp_mapping.settings.build import Parameters, parse_assignment
from gp_mapping.settings.intake import IntakeSettings
from gp_mapping.settings.mapping import MapSettings
from gp_mapping.settings.node import NodeSettings

SETTINGS = {f.name for kind in (MapSettings, IntakeSettings, NodeSettings) for f in fields(kind)}
DOCS = ROOT / "docs"
FOLDERS = "gp_mapping|config|launch|docs|test|benchmark|rviz|requirements"
# written by `gp-mapping bench`: a link to them may be ahead of them
EXPECTED: set[str] = set()
each_page = pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)


@functools.cache
def all_code() -> str:
    """All that could define a name."""
    files = [
        *(ROOT / "gp_mapping").rglob("*.py"),
        *(ROOT / "launch").glob("*.py"),
        ROOT / "setup.py",
    ]
    return "\n".join(path.read_text(encoding="utf-8") for path in files)


@functools.cache
def words_of_the_code() -> frozenset[str]:
    return frozenset(re.findall(r"\w+", all_code()))


def read(name: str) -> str:
    return (DOCS / name).read_text(encoding="utf-8")


@each_page
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
        if target.startswith(("http://", "https://")):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        assert file.exists() or file.name in EXPECTED, f"{page.name}: {target} leads nowhere"
        if anchor:
            assert anchor in slugs(file), f"{page.name}: {target}: there is no such heading"


def test_nothing_cites_a_page_that_is_not_here():
    """Code, tests and pages: what a reader is sent to is in the repository, and is not how it came about."""
    folders = ("gp_mapping", "benchmark", "test", "docs", "config", "launch")
    files = [
        path
        for folder in folders
        for path in (ROOT / folder).rglob("*")
        if path.suffix in (".py", ".md", ".yaml") and path != Path(__file__)
    ]
    known = {path.name for path in [*DOCS.glob("*.md"), *ROOT.glob("*.md"), *ROOT.glob("*.rst")]}
    known.add("page.md")  # what tests write
    for path in [*files, *ROOT.glob("*.md"), *ROOT.glob("*.rst")]:
        text = path.read_text(encoding="utf-8")
        cited = ()
        if ".md" in text or ".rst" in text:
            cited = re.findall(r"(?<![\w*])[\w./-]*?([\w-]+\.(?:md|rst))(?!\w)", text)
        assert set(cited) <= known, (
            f"{path}: {sorted(set(cited) - known)} are not in the repository"
        )
        told = re.search(r"\b[Ii]n the issue|\bof the issue|\bissues? #?\d+\b|/work/", text)
        assert not told, f"{path}: {told.group(0)!r} is of no use to a reader"


@each_page
def test_rows_of_a_table_have_as_many_cells_as_its_head(page):
    """Else it is no table on the page; a bar inside a cell is written \\|."""
    text = re.sub(
        r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE
    )
    for table in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        head, *rows = (len(re.findall(r"(?<!\\)\|", row)) for row in table.splitlines())
        assert set(rows) <= {head}, f"{page.name}: {table.splitlines()[0]}"


@each_page
def test_no_marks_of_a_merge(page):
    assert not re.search(r"^(<{7}|>{7}) ", page.read_text(encoding="utf-8"), re.MULTILINE)


@each_page
def test_named_files_exist(page):
    text = page.read_text(encoding="utf-8")
    for span in spans(text) + [word for line in command_lines(text) for word in line.split()]:
        if re.fullmatch(rf"(?:{FOLDERS})/[\w./*-]+", span):
            assert list(ROOT.glob(span.rstrip("/"))), f"{page.name}: {span} does not exist"


def parser_of(words: list[str]) -> tuple[argparse.ArgumentParser, str]:
    """The parser that takes the options of a `gp-mapping` line, and the command's name."""
    parser = argparse.ArgumentParser()
    add_arguments(words[0], parser)
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction) and len(words) > 1:
            assert words[1] in action.choices, (
                f"{words[1]} is not one of {', '.join(action.choices)}"
            )
            return action.choices[words[1]], " ".join(words[:2])
    return parser, words[0]


@each_page
def test_commands_and_options_exist(page):
    """`gp-mapping COMMAND … --option`; alternatives may be written `map | plot`."""
    for line in command_lines(page.read_text(encoding="utf-8")):
        words = re.sub(r"^\S*python3? -m gp_mapping\.cli", "gp-mapping", line).split()
        if "gp-mapping" not in words[:3] or words[-1] == "gp-mapping":
            continue
        words = words[words.index("gp-mapping") + 1 :]
        if words[0] in ("COMMAND", "--help", "…"):
            continue
        assert words[0] in COMMANDS, f"{page.name}: `{line}`: no such command"
        if words[0] == "bench":
            continue  # passes everything on
        parser, command = parser_of(words)
        for option in (word.split("=")[0] for word in words if word.startswith("--")):
            assert option in parser._option_string_actions, (
                f"{page.name}: `{line}`: {command} has no {option}"
            )
        for name, value in pairwise(words):
            if name == "--set" and command == "map" and value != "KEY=VALUE":
                Parameters.build(dict([parse_assignment(value.strip("'\""))]))


@each_page
def test_make_targets_exist(page):
    targets = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for line in command_lines(page.read_text(encoding="utf-8")):
        for target in re.findall(r"(?:^|\s)make ([a-z]\w*)", line):
            assert target in targets, f"{page.name}: `{line}`: the Makefile has no target {target}"


@each_page
def test_launch_lines_name_arguments_that_exist(page):
    for line in command_lines(page.read_text(encoding="utf-8")):
        for name, rest in re.findall(r"ros2 launch gp_mapping (\S+)(.*)", line):
            text = (ROOT / "launch" / name).read_text(encoding="utf-8")
            assert "common_arguments(" in text
            shared = ROOT / "gp_mapping" / "ros" / "tools" / "launch_arguments.py"
            text += shared.read_text(encoding="utf-8")
            for argument in re.findall(r"(\w+):=", rest):
                assert re.search(rf'argument\(\s*"{argument}"', text), (
                    f"{page.name}: {name} has no argument {argument}"
                )


@each_page
def test_parameter_blocks_are_what_the_node_takes(page):
    """Every YAML block with ros__parameters, through the same check as --params."""
    for block in fenced(page.read_text(encoding="utf-8"), "yaml"):
        content = yaml.safe_load(block)
        for section in content.values() if isinstance(content, dict) else ():
            if isinstance(section, dict) and "ros__parameters" in section:
                Parameters.build(section["ros__parameters"])


@each_page
def test_parameters_in_prose_are_settings(page):
    """`name: value` in prose is a parameter with a value that it takes."""
    for span in spans(page.read_text(encoding="utf-8")):
        found = re.fullmatch(r"([a-z]\w*): (\S+)", span)
        if found and found[1] not in (
            "use_sim_time",
            "mapping",
        ):  # mapping: a status in /diagnostics
            assert found[1] in SETTINGS, f"{page.name}: `{span}`: no such parameter"
            Parameters.build({found[1]: yaml.safe_load(found[2])})


@each_page
def test_names_with_underscores_are_in_the_code(page):
    """`snake_case` in prose: a setting, a topic, an executable, a key of a report; some word of the code at least."""
    for span in spans(page.read_text(encoding="utf-8")):
        if re.fullmatch(r"[a-z]+(?:_[a-z0-9]+)+", span) and span not in SETTINGS:
            assert span in words_of_the_code(), f"{page.name}: `{span}` is nowhere in the code"


def test_tuning_has_every_setting_of_the_map_and_no_other():
    named = set(re.findall(r"^\| `(\w+)`", read("tuning.md"), re.MULTILINE))
    wanted = {f.name for f in fields(MapSettings)}
    assert not wanted - named, f"docs/tuning.md has no row for {sorted(wanted - named)}"
    assert not named - SETTINGS, (
        f"docs/tuning.md has rows for what is no setting: {sorted(named - SETTINGS)}"
    )


def test_defaults_in_tuning_are_those_of_the_code():
    defaults = {
        f.name: f.default
        for kind in (MapSettings, IntakeSettings, NodeSettings)
        for f in fields(kind)
    }
    for name, shown in re.findall(r"^\| `(\w+)` \| `([^`]*)`", read("tuning.md"), re.MULTILINE):
        value = yaml.safe_load(shown)
        value = float(value) if isinstance(defaults[name], float) else value
        assert value == defaults[name], (
            f"docs/tuning.md: {name} is {defaults[name]!r} in the code, not {shown}"
        )


def test_every_drop_reason_has_a_remedy():
    named = re.findall(r"^\| `(\w+)` \|", read("troubleshooting.md"), re.MULTILINE)
    counted = set(
        re.findall(r'_counts\["(\w+)"\]', (ROOT / "gp_mapping/runtime/worker.py").read_text())
    )
    code = "".join(
        path.read_text(encoding="utf-8") for path in (ROOT / "gp_mapping/ros").rglob("*.py")
    )
    counted |= set(re.findall(r'worker\.count\("(\w+)"', code))
    wanted = {reason.value for reason in DropReason} | counted
    assert not wanted - set(named), (
        f"docs/troubleshooting.md has no entry for {sorted(wanted - set(named))}"
    )
    assert len(named) == len(set(named)), "docs/troubleshooting.md has an entry twice"
    assert set(named) <= wanted, (
        f"docs/troubleshooting.md explains what no code counts: {sorted(set(named) - wanted)}"
    )


def test_every_warning_has_a_remedy():
    page, texts = one_line(read("troubleshooting.md")), warnings_in_code()
    assert len(texts) > 15, "the search for warnings finds too few: it no longer fits the code"
    missing = [f"{file}: {text}" for text, file in texts.items() if text not in page]
    assert not missing, "docs/troubleshooting.md has no entry for\n" + "\n".join(missing)


def test_quoted_warnings_are_in_the_code():
    """A heading of the list that no code says any more is a lie."""
    texts = set(warnings_in_code())
    section = read("troubleshooting.md").partition("## Warnings")[2].partition("\n## ")[0]
    quoted = [
        one_line(q).strip() for q in re.findall(r"^> (.*(?:\n> .*)*)$", section, re.MULTILINE)
    ]
    assert quoted
    for text in quoted:
        assert text in texts, f"docs/troubleshooting.md quotes what no code says: {text}"


def test_topics_and_services_are_those_of_the_node():
    page = read("topics_and_services.md")
    code = "".join(
        p.read_text(encoding="utf-8") for p in (ROOT / "gp_mapping" / "ros").rglob("*.py")
    )
    services = {
        f"~/{name}"
        for name in re.findall(r'(?<!subscription)\(\s*\w+,\s*"(\w+)",\s*self\._on_', code)
    }
    outputs = (ROOT / "gp_mapping/ros/mapper/outputs.py").read_text()
    names = {
        f"~/{name}" for name in re.findall(r'^    Output\(\s*"(\w+)"', outputs, re.M)
    } | services
    names |= set(
        re.findall(r'(?:create_|_)(?:publisher|subscription|subscribe)\(\s*\w+,\s*"(~/\w+)"', code)
    )
    names |= {f"~/{name}" for name in re.findall(r'\(\s*"(survey/\w+)",\s*survey\.', code)}
    assert services and len(names) > len(services)
    for name in names:
        assert f"`{name}`" in page, f"docs/topics_and_services.md does not name {name}"
    for name in re.findall(r"`(~/\w+)`", page):
        assert name in names, (
            f"docs/topics_and_services.md names {name}, which the node does not have"
        )


def test_pictures_are_small():
    pictures = sorted((DOCS / "images").glob("*.png"))
    assert pictures
    for path in pictures:
        assert path.stat().st_size <= 300_000, f"{path.name} has {path.stat().st_size} bytes"


def test_template_shows_placeholders_as_ellipses():
    import ast

    assert template(ast.parse('f"no {name} for {age:.1f} s"', mode="eval").body) == "no … for … s"
