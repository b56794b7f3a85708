"""`gp-mapping report`: one valid HTML file without any network, with the numbers that `check` and `map` give."""

import base64
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from pictures import full_pictures
from small_drive import GIVEN, lanes, write_drive
from test_cli import wrong
from web_browser import browser_or_skip

from gp_mapping import cli
from gp_mapping.analysis.changed import APART
from gp_mapping.analysis.refits import REFITS, ways_to_refit
from gp_mapping.commands.check.text import text_of
from gp_mapping.commands.report.html import page
from gp_mapping.commands.report.picture import nice_length
from gp_mapping.settings.mapping import MapSettings

FAST = ["--set", "max_inducing=40", "--set", "resolution=0.2", *GIVEN]
VOID = {"meta", "img", "link", "br", "hr", "input"}
CHILDREN = {
    "ul": {"li"},
    "ol": {"li"},
    "table": {"thead", "tbody"},
    "thead": {"tr"},
    "tbody": {"tr"},
    "tr": {"th", "td"},
}


class Page(HTMLParser):
    """Elements nest, ids are unique, links lead somewhere, nothing is fetched; text by the heading it stands under."""

    def __init__(self, text: str):
        super().__init__()
        self.open, self.ids, self.links, self.images, self.text, self.heading = (
            [],
            [],
            [],
            [],
            {"": ""},
            "",
        )
        assert text.startswith("<!DOCTYPE html>\n")
        self.feed(text)
        self.close()
        assert not self.open, f"not closed: {self.open}"
        assert len(self.ids) == len(set(self.ids)) and {link[1:] for link in self.links} <= set(
            self.ids
        )

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        assert len(given) == len(attributes) and tag not in ("script", "iframe", "object", "base")
        parent = self.open[-1] if self.open else ""
        assert parent not in CHILDREN or tag in CHILDREN[parent], f"<{tag}> in <{parent}>"
        assert parent != "p" or tag in ("code", "a", "em"), f"<{tag}> in <p>"
        assert not any(name.startswith("on") or name == "style" for name in given)
        if tag == "img":
            kind, _, data = given["src"].partition(",")
            assert kind == "data:image/png;base64" and given["alt"]
            self.images.append(base64.b64decode(data, validate=True))
        elif "src" in given or tag == "link":
            raise AssertionError(f"{tag} fetches {given}")
        if "href" in given:
            assert given["href"].startswith("#"), f"a link leads out: {given['href']}"
            self.links.append(given["href"])
        self.ids += [given["id"]] if "id" in given else []
        if tag not in VOID:
            self.open.append(tag)
        if tag == "h2":
            self.heading = ""

    def handle_endtag(self, tag):
        assert self.open and self.open.pop() == tag, f"</{tag}> closes nothing"

    def handle_data(self, data):
        if "style" in self.open:
            assert "url(" not in data and "@import" not in data
        elif "h2" in self.open:
            self.heading += data
            self.text.setdefault(self.heading, "")
        else:
            self.text[self.heading] += data


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Two drives, the report of one against the other with `check`'s own, and of a saved map."""
    folder = tmp_path_factory.mktemp("runs")
    write_drive(folder / "hall <1> & more", lanes(count=3))
    write_drive(folder / "again", lanes(0.1, count=2), 3000.0, seed=2)
    bags = [
        str(folder / "hall <1> & more"),
        "--against",
        str(folder / "again"),
        "--no-refits",
        *FAST,
    ]
    assert cli.main(["check", *bags, "--output", str(folder / "check")]) == 0
    with full_pictures():
        assert cli.main(["report", *bags, "-o", str(folder / "bag.html")]) == 0
    assert (
        cli.main(["map", bags[0], "--output", str(folder / "out"), "--test", bags[2], *FAST]) == 0
    )
    assert cli.main(["report", str(folder / "out"), "-o", str(folder / "saved.html")]) == 0
    return folder


def test_report_of_a_bag_says_what_check_says(runs):
    text = (runs / "bag.html").read_text(encoding="utf-8")
    found, check = Page(text), json.loads((runs / "check" / "report.json").read_text())
    assert set(found.text) >= {
        "Map",
        "How far to trust it",
        "What to mend first",
        "Hyper-parameters",
        "Settings",
        "What the map has learned of the robot",
        "Measurements that were left out",
        "Changes of the field",
    }
    assert [image[:8] for image in found.images] == [b"\x89PNG\r\n\x1a\n"] * 2
    trust = found.text["How far to trust it"]
    for level, share in check["test"]["coverage_levels"].items():
        assert f"in {level} %" in trust and f"{share:.3f}" in trust
    assert (
        f"{check['test']['rmse_ut']:.3f}" in trust
        and f"{check['test']['bands']['<0.1']['rmse_ut']:.3f}" in trust
    )
    for sentence in check["plain"]:
        assert sentence in found.text["What the map has learned of the robot"]
    for advice in check["mend"]:
        assert advice["text"] in found.text["What to mend first"]
    for name in ("max_inducing", "resolution"):
        assert name in found.text["Settings"].partition("All ")[0]
    assert str(runs) not in text, "the page goes to others: no folders of this machine"
    assert "Map of hall <1> & more" in found.text[""]


def test_report_of_a_saved_map_says_what_was_saved(runs):
    found, kept = (
        Page((runs / "saved.html").read_text(encoding="utf-8")),
        json.loads((runs / "out" / "report.json").read_text()),
    )
    assert len(found.images) == 1 and "What to mend first" not in found.text
    assert f"{kept['coverage']:.3f}" in found.text["How far to trust it"]
    assert f"{kept['hyperparameters']['lengthscale']:.3g} m" in found.text["Hyper-parameters"]
    assert "max_inducing" in found.text["Settings"] and str(kept["samples"]) in found.text[""]


def test_a_report_of_another_map_is_not_mixed_in(runs, tmp_path):
    """report.json beside a checkpoint that has gone on since then: its scores are not this map's."""
    for name in ("map.gpm", "report.json"):
        (tmp_path / name).write_bytes((runs / "out" / name).read_bytes())
    kept = json.loads((tmp_path / "report.json").read_text())
    kept["map"]["samples"] += 1
    (tmp_path / "report.json").write_text(json.dumps(kept))
    assert cli.main(["report", str(tmp_path / "map.gpm"), "-o", str(tmp_path / "r.html")]) == 0
    assert "Nothing was tested" in (tmp_path / "r.html").read_text(encoding="utf-8")


def test_a_model_without_such_a_memory_is_reported_without_a_calibration(runs, tmp_path, capfd):
    bag, model = (
        str(runs / "again"),
        ["--set", "model=curl_free", "--set", "field_component=xyz", *FAST],
    )
    assert cli.main(["map", bag, "--output", str(tmp_path / "out"), *model]) == 0
    assert cli.main(["report", str(tmp_path / "out"), "-o", str(tmp_path / "r.html")]) == 0
    found = Page((tmp_path / "r.html").read_text(encoding="utf-8"))
    assert "no calibration" in found.text["What the map has learned of the robot"]
    capfd.readouterr()
    assert "write field_component: xyz" in wrong(capfd, "report", bag, "--set", "model=curl_free")


def test_the_same_saved_map_gives_the_same_page(runs, tmp_path):
    assert cli.main(["report", str(runs / "out"), "-o", str(tmp_path / "saved.html")]) == 0
    assert (tmp_path / "saved.html").read_bytes() == (runs / "saved.html").read_bytes()


def test_a_browser_shows_all_of_it(runs):
    with browser_or_skip() as browser:
        browser.open((runs / "bag.html").as_uri())
        sizes = browser.script("return [...document.images].map(i => i.complete && i.naturalWidth)")
        assert len(sizes) == 2 and min(sizes) > 500 and browser.console() == []
        assert browser.script("return document.documentElement.scrollWidth <= window.innerWidth")
        assert (
            browser.script(
                "return performance.getEntriesByType('resource')"
                ".filter(e => !e.name.startsWith('data:')).length"
            )
            == 0
        )


def test_the_page_has_every_row_that_check_prints(runs):
    """Also those that are rare: of places that have changed, of maps without a correction, of biases."""
    check = json.loads((runs / "check" / "report.json").read_text())
    band = check["test"]["bands"]["<0.1"]
    check["test"] |= {
        "changed": band | {"rmse_ut": 7.123},
        "unchanged": band | {"rmse_ut": 0.456},
    }
    ways = ways_to_refit(MapSettings(), biased=True)
    check["refits"] = {name: 20.125 + i for i, name in enumerate(ways)}
    check["biases"] = [
        {"pass": i, "stamp": 0.0, "mean": 0.5 + i, "stddev": 0.1, "apart": 0.1} for i in (1, 2)
    ]
    page_text = page(plain_facts() | check | {"mend": []}, {"map": b""})
    told = Page(page_text.replace('data:image/png;base64,"', 'data:image/png;base64,AA=="')).text
    trust, robot = told["How far to trust it"], told["What the map has learned of the robot"]
    printed = text_of(check, None)
    assert set(ways) == set(REFITS)
    rows = [*APART.values(), *REFITS.values(), "7.123", "0.456"]
    for words in [*rows, *(f"{value:.3f}" for value in check["refits"].values())]:
        assert words in printed and words in trust, words
    assert "pass 1 +1.50 ± 0.10" in printed and "pass 1 +1.50 ± 0.10" in robot


def plain_facts() -> dict:
    """What the page states, of a map that was hardly begun, with names from outside."""
    return {
        "title": "<script>alert(1)</script>",
        "version": "0",
        "model": "m",
        "sources": ["<b>"],
        "unit": "µT",
        "scale": 1e-6,
        "map": {"samples": 1, "passes": 1, "path_length": 1.0, "hyperparameters": {"<i>": [1, 2]}},
        "noise_stddev": None,
        "suggestions": [],
        "extent": (1.0, 1.0),
        "stddev_limits": [0.0, 1e-6],
        "test": None,
        "mend": ["<u>"],
        "plain": ["<s>"],
        "refits": {},
        "how": None,
        "dropped": {"<x>": 2},
        "explained": ["<y>"],
        "changes": [],
        "changes_in_test": [],
        "settings": {"<z>": "<w>"},
        "events": {"gross_errors": 0, "weakened_cells": 0},
    }


def test_names_from_outside_stay_text():
    text = page(plain_facts(), {"map": b""}).replace(
        'data:image/png;base64,"', 'data:image/png;base64,AA=="'
    )
    Page(text)
    assert not re.search(r"<(script|b|i|u|s|x|y|z|w)>", text)


@pytest.mark.parametrize(
    "most, length", [(0.07, 0.05), (1.0, 1.0), (1.99, 1.0), (2.3, 2.0), (7.0, 5.0), (1200.0, 1e3)]
)
def test_scale_bars_have_round_lengths(most, length):
    assert nice_length(most) == pytest.approx(length)


def test_wrong_usage(capfd, runs):
    out = str(runs / "out")
    assert "ends in .html" in wrong(capfd, "report", out, "-o", "report.pdf")
    assert "give it alone" in wrong(capfd, "report", out, str(runs / "again"))
    assert "come too late" in wrong(capfd, "report", out, "--set", "seed=3")
    assert str(runs / "nothing") in wrong(capfd, "report", str(runs / "nothing"))
    (runs / "file").write_text("")
    assert "is a file, no folder" in wrong(
        capfd, "report", out, "-o", str(Path(runs, "file", "r.html"))
    )
