"""The page: everything is on it, nothing of it is code, and a browser shows it on a desk, on a phone and on paper."""

from __future__ import annotations

import re
import shutil
import struct
import subprocess
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpuhost.vllm.plugins.module_utils.service.report import as_json, build_report
from ansible_collections.gpuhost.vllm.plugins.plugin_utils.report_page import number, render_page, speed_plot, value
from report_inputs import COMMIT, MODEL, check, found

TEMPLATE = Path(__file__).parents[3] / "roles/verify/templates/report.html.j2"
CHROMIUM = shutil.which("chromium")


def page(report: dict[str, Any]) -> str:
    return render_page(report, TEMPLATE.read_text())


def example() -> dict[str, Any]:
    """A report with something in every part."""
    probe = found()["probe"]
    probe["checks"][3] = check("multi_step", "failed", required=False, reason="the answer does not say 5")
    before = found(service={**found()["service"], "release_id": "0.31.0-7711aa00ff21"})
    warnings = ["multi_step: the answer does not say 5"]
    return build_report(found(previous=as_json(build_report(before)), probe={**probe, "warnings_found": warnings}))


class Page(HTMLParser):
    """Collects text and checks that tags are balanced."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.texts: list[str] = []
        self.tags: list[str] = []
        self.seen: set[str] = set()
        self.links: list[str] = []
        self.feed(text)
        assert self.tags == [], f"not closed: {self.tags}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.add(tag)
        self.links += [
            content or ""
            for name, content in attrs
            if name in ("src", "href", "srcset", "action") or name.startswith("on")
        ]
        if tag not in ("meta", "br", "link", "line", "rect", "circle", "polyline"):
            self.tags.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag in self.tags:
            assert self.tags.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.tags and self.tags[-1] != "style":
            self.texts.append(data)

    @property
    def text(self) -> str:
        return re.sub(r"\s+", " ", " ".join(self.texts))


def test_everything_is_on_it() -> None:
    text = Page(page(example())).text
    for piece in (
        MODEL, COMMIT, "passed with warnings", "0.32.0-c43956a59b8e", "0.31.0-7711aa00ff21", "61.3", "142 ms", "178,768", "131,072",
        "171,136", "-4.3 %", "bfloat16", "offers TRITON_MLA alone", "kv_cache_quant_algo", "GPU 7", "95.6 GiB", "PyTorch 2.13.0+cu130",
        "An answer of factual.", "Let me think.", "the answer does not say 5", "42 ×", "ACS redirects", "tensor_parallel_size", "274", "431.7",
    ):  # fmt: skip
        assert piece in text, piece


def test_it_needs_nothing_else_and_runs_nothing() -> None:
    parsed = Page(page(example()))
    assert parsed.links == []
    assert not parsed.seen & {"script", "iframe", "object", "embed", "img", "form"}
    assert "@import" not in page(example())
    assert "url(" not in page(example())


@pytest.mark.parametrize(
    "evil", ["<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "{{ 7 * 7 }}", "</style><b>"]
)
def test_what_a_model_writes_stays_text(evil: str) -> None:
    probe = found()["probe"]
    probe["checks"] = [
        {**check("factual", reason=evil), "exchanges": [{"prompt": evil, "answer": evil, "reasoning": evil}]}
    ]
    log = found()["log"]
    log["findings"][0] |= {"example": evil, "meaning": evil}
    service = {**found()["service"], "options": {evil: evil}, "model": evil}
    parsed = Page(page(build_report(found(probe=probe, log=log, service=service, plan={}))))
    assert evil in parsed.text
    assert not parsed.seen & {"script", "img"}


def leaves(part: Any, way: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if isinstance(part, (dict, list)):
        for key in part if isinstance(part, dict) else range(len(part)):
            yield from leaves(part[key], (*way, key))
    elif isinstance(part, str):
        yield way


def test_no_text_of_any_module_becomes_markup() -> None:
    evil = "</code></style><script>alert(1)</script><img src=x onerror=alert(1)>\" ' {{ 7 * 7 }} {% raw %}"
    everything = found()
    for way in leaves(everything):
        place = everything
        for key in way[:-1]:
            place = place[key]
        if way[-1] not in ("verdict", "severity", "id"):  # words of our own
            place[way[-1]] = evil
    parsed = Page(page(build_report(everything)))
    assert evil in parsed.text and not parsed.seen & {"script", "img"}


def test_a_report_of_little() -> None:
    report = build_report({"instance": "x", "host": "h", "generated_at": "2026-12-02T00:00:00Z", "required_checks": []})
    text = Page(page(report)).text
    assert "This is the first one." in text
    assert "None" not in text


def test_the_plot() -> None:
    points = found()["probe"]["speed"]
    plot = speed_plot(points)
    assert plot.count('class="column"') == 3
    heights = [float(height) for height in re.findall(r'class="column"[^>]* height="([\d.]+)"', plot)]
    assert heights[1] / heights[0] == pytest.approx(170.4 / 59.8, rel=0.01)
    assert speed_plot(points[:1]) == ""


def test_numbers_and_values_as_people_write_them() -> None:
    assert [number(n) for n in (None, 178768, 11.7, 12.0, 0)] == ["–", "178,768", "11.7", "12", "0"]
    assert [value(v) for v in (None, True, ["a", "b"], {"k": 1}, [], "x")] == ["–", "yes", "a, b", "k: 1", "none", "x"]


# --- in a browser -----------------------------------------------------------------------------------------------------


def chromium(tmp_path: Path, *arguments: str) -> str:
    """Run headless Chromium once; it must not look for anything beyond the file."""
    command = [
        str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
        "--disable-component-update", "--disable-sync", "--hide-scrollbars", f"--user-data-dir={tmp_path / 'profile'}", *arguments,
    ]  # fmt: skip
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout


def png_size(path: Path) -> tuple[int, int]:
    width, height = struct.unpack(">II", path.read_bytes()[16:24])
    return width, height


# A page that measures itself: the tests' own, never part of the product.
MEASURE = """<script>addEventListener("load", () => {
  const wide = [...document.querySelectorAll("body *")].filter(e => e.getBoundingClientRect().right > innerWidth + 1);
  document.title = `width=${document.documentElement.scrollWidth} of ${innerWidth} wide=${wide.map(e => e.tagName + "." + e.className).join(",")}`;
})</script>"""


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")
@pytest.mark.parametrize("width", [1100, 500])
def test_it_fits_into_the_window(tmp_path: Path, width: int) -> None:
    # Headless Chromium has no window below 500 pixels: the phone is an iframe.
    text = page(example())
    (tmp_path / "page.html").write_text(text.replace("</head>", MEASURE + "</head>"))
    dom = chromium(
        tmp_path,
        f"--window-size={width},900",
        "--virtual-time-budget=2000",
        "--dump-dom",
        f"file://{tmp_path}/page.html",
    )
    title = re.search(r"<title>([^<]*)", dom)
    assert title is not None
    assert title[1] == f"width={width} of {width} wide="


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")
def test_it_fits_onto_a_phone(tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text(page(example()).replace("</head>", MEASURE + "</head>"))
    (tmp_path / "phone.html").write_text(
        '<iframe src="page.html" style="width:360px;height:800px;border:0"></iframe>'
        "<script>setTimeout(() => { document.title = frames[0].document.title }, 1000)</script>"
    )
    dom = chromium(
        tmp_path,
        "--allow-file-access-from-files",
        "--virtual-time-budget=3000",
        "--dump-dom",
        f"file://{tmp_path}/phone.html",
    )
    title = re.search(r"<title>([^<]*)", dom)
    assert title is not None
    assert title[1] == "width=360 of 360 wide="


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")
def test_a_screenshot_and_a_print(tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text(page(example()))
    chromium(
        tmp_path, "--window-size=1100,1600", f"--screenshot={tmp_path / 'page.png'}", f"file://{tmp_path}/page.html"
    )
    assert png_size(tmp_path / "page.png") == (1100, 1600)
    assert (tmp_path / "page.png").stat().st_size > 60_000, "the picture is nearly empty"
    chromium(
        tmp_path, "--no-pdf-header-footer", f"--print-to-pdf={tmp_path / 'page.pdf'}", f"file://{tmp_path}/page.html"
    )
    assert (tmp_path / "page.pdf").read_bytes().startswith(b"%PDF")
