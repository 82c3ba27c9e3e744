"""The page in a headless Chromium: decisions, statements, files, keys, saving, small and dark screens."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("playwright", reason="pip install 'isr-rag[dev]'")

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright
from server.tests.http import worlds
from tests.test_sources import pdf_of

ROOT = Path(__file__).parents[3]
BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
pytestmark = pytest.mark.slow

SERVER = """
from isr_rag import ISRGate
from isr_rag.references import CalibratedMixture
from isr_rag_server.http import Limits, Settings, serve
from isr_rag.testing import FixedScorer
from tests.audit import audit_world


def read(prompt, ordering):
    asks_about_a_statement = "Claim: " in prompt.suffix or "Answer: " in prompt.suffix
    return audit_world.read(prompt, ordering) if asks_about_a_statement else 0.97


class Capped(CalibratedMixture):
    def ceiling(self, predicate, *, rounds=1):
        return {ceiling!r}


gate = ISRGate(scorer=FixedScorer(read, layout="full"), reference=Capped(audit_world.Itself()))
serve(gate, Settings(port=0, key={key!r}, limits=Limits(chunks=30)), started=lambda a: print(a, flush=True))
"""


@contextmanager
def served(key: str | None = None, ceiling: float | None = None) -> Iterator[str]:
    command = [sys.executable, "-c", SERVER.format(key=key, ceiling=ceiling)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.terminate()
            process.wait(10)


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with served() as found:
        yield found


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    found = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    if found is None:
        pytest.skip("no Chromium on the path")
    with sync_playwright() as playwright:
        yield (launched := playwright.chromium.launch(executable_path=found, args=["--no-sandbox"]))
        launched.close()


class Watched:
    """A page, and what it asked for and complained about."""

    def __init__(self, context: BrowserContext, address: str) -> None:
        self.page: Page = context.new_page()
        self.asked: list[str] = []
        self.wrong: list[str] = []
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.on("pageerror", lambda error: self.wrong.append(str(error)))
        self.page.on("console", lambda said: self.wrong.append(said.text) if said.type == "error" else None)
        self.page.goto(address)

    def done(self) -> None:
        expect(self.page.locator("#status")).to_have_text(re.compile("^Done"), timeout=20_000)


@pytest.fixture
def watched(browser: Browser, address: str) -> Iterator[Watched]:
    with browser.new_context(viewport={"width": 1280, "height": 900}) as context:
        found = Watched(context, address)
        yield found
        assert not found.wrong
        assert all(url.startswith((address, "blob:")) for url in found.asked), found.asked


@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 360)])
def test_the_rules_of_accessibility_are_kept(browser: Browser, address: str, scheme: Any, width: int) -> None:
    """Contrast, names, roles and order by axe-core, of the empty page and of a result."""
    size: Any = {"width": width, "height": 900}
    with browser.new_context(color_scheme=scheme, viewport=size, bypass_csp=True) as context:
        page = context.new_page()
        page.goto(address)
        for example in (None, "a longer answer"):
            if example is not None:
                page.get_by_role("button", name=example).click()
                expect(page.locator("#result")).to_be_focused(timeout=20_000)
            found = Axe().run(page).response
            assert len(found["passes"]) > 20 and found["violations"] == []


def photograph(page: Page, name: str) -> None:
    if folder := os.environ.get("ISR_RAG_SCREENSHOTS"):
        page.screenshot(path=f"{folder}/{name}.png", full_page=True)


def test_a_supported_claim_and_a_near_miss(watched: Watched) -> None:
    page = watched.page
    page.get_by_role("button", name="a supported claim").click()
    watched.done()
    expect(page.locator("#verdict .badge").first).to_have_text("ANSWER")
    expect(page.locator("#targets tbody tr")).to_have_count(6)
    expect(page.locator("#targets tbody tr").first).to_contain_text("abstains")  # h* = 1%
    expect(page.locator("#targets tbody tr").last).to_contain_text("answers")
    assert page.locator("#verdict svg").count() == 2
    expect(page.locator("#card mark")).to_have_text("The Loire is the longest river in France.")
    photograph(page, "supported")
    page.get_by_label("Answer or claim").fill("The Seine is the longest river in France.")
    page.get_by_role("button", name="Judge").click()
    expect(page.locator("#verdict .badge").first).to_have_text("ABSTAIN", timeout=20_000)
    expect(page.locator("#card .badge")).to_have_text("not enough information")
    decided = {
        "q": [0.985],
        "q_bar": 0.985,
        "q_alone": [0.021, 0.003],
        "p_ref": 0.55,
        "settings": {"h_star": 0.05, "layout": "parallel"},
    }
    told = page.evaluate("decided => orders(decided).textContent", decided)
    assert "98.5% in every order, by construction, and at most 2.1% to a passage read alone; 55.0% is trusted" in told


def test_the_first_two_examples_are_those_of_the_readme() -> None:
    """Which a test of the README holds to: by default the gate answers the first and not the second."""
    script = (ROOT / "server/isr_rag_server/http/page/page.js").read_text("utf-8")
    block = (ROOT / "README.md").read_text("utf-8").split("```python")[1].split("```")[0]
    for name in ("supported", "near"):
        found = re.search(rf'{name}: {{\s*answer: "(.+?)",\s*evidence: "(.+?)",', script)
        assert found is not None
        assert all(f'"{text}"' in block for text in (found[1], *found[2].split("\\n\\n")))


def test_a_longer_answer_by_keyboard(watched: Watched) -> None:
    page = watched.page
    page.get_by_role("button", name="a longer answer").focus()
    page.keyboard.press("Enter")
    watched.done()
    expect(page.locator("#result")).to_be_focused()
    statements = page.locator(".statement")
    expect(statements).to_have_count(4)
    statements.nth(3).focus()
    page.keyboard.press("Enter")
    expect(statements.nth(3)).to_have_attribute("aria-pressed", "true")
    expect(statements.nth(0)).to_have_attribute("aria-pressed", "false")
    expect(page.locator("#card")).to_contain_text("not enough information")
    expect(page.locator("#released")).not_to_contain_text("dog")
    expect(page.get_by_label("Tolerated rate")).to_have_value("0.2")
    photograph(page, "long")
    page.get_by_label("Question (optional").press("Control+Enter")
    watched.done()


def test_files_are_read_dropped_refused_and_removed(watched: Watched, tmp_path: Path) -> None:
    page = watched.page
    (tmp_path / "seine.md").write_text(audit_text := "The Seine is 777 kilometres long.", "utf-8")
    (tmp_path / "page.html").write_text(f"<html><title>R</title><p>{audit_text} It flows through Paris.</p>", "utf-8")
    (tmp_path / "empty.pdf").write_bytes(b"no pdf")
    page.locator("#files").set_input_files([tmp_path / "seine.md", tmp_path / "empty.pdf"])
    expect(page.locator("#problem")).to_contain_text("not a PDF")
    expect(page.locator("#added li")).to_have_count(1)
    page.locator("#files").set_input_files(tmp_path / "page.html")
    expect(page.locator("#added li")).to_have_count(2)
    transfer = page.evaluate_handle(
        "() => { const t = new DataTransfer(); t.items.add(new File(['Dropped text.'], 'dropped.txt')); return t; }"
    )
    page.locator("#drop").dispatch_event("drop", {"dataTransfer": transfer})
    expect(page.locator("#added li")).to_have_count(3)
    page.get_by_role("button", name="Remove dropped.txt").click()
    expect(page.locator("#added li")).to_have_count(2)
    transfer = page.evaluate_handle(
        "(bytes) => { const t = new DataTransfer();"
        " t.items.add(new File([new Uint8Array(bytes)], 'loire.pdf')); return t; }",
        list(pdf_of("The Loire is 1006 kilometres long.", "It ends at Saint-Nazaire.")),
    )
    page.locator("#drop").dispatch_event("drop", {"dataTransfer": transfer})
    expect(page.locator("#added li")).to_have_count(3)
    for answer, source in (("The Seine is 777", "seine"), ("The Loire is 1006", "loire")):
        page.get_by_label("Answer or claim").fill(f"{answer} kilometres long.")
        page.get_by_role("button", name="Judge").click()
        watched.done()
        expect(page.locator("#card")).to_contain_text(source)
    watched.wrong.clear()  # the refused file is an error of the console too


def test_what_is_missing_or_too_much_is_said(watched: Watched) -> None:
    page = watched.page
    page.get_by_role("button", name="Judge").click()
    expect(page.get_by_role("alert")).to_contain_text("Give an answer")
    page.get_by_label("Answer or claim").fill("a")
    page.get_by_role("button", name="Judge").click()
    expect(page.get_by_role("alert")).to_contain_text("Give evidence")
    page.get_by_label("Evidence").fill("\n\n".join(["text"] * 31))
    page.get_by_role("button", name="Judge").click()
    expect(page.get_by_role("alert")).to_contain_text("takes 30")


def test_texts_are_never_markup_and_files_to_share_stand_alone(watched: Watched, tmp_path: Path) -> None:
    page = watched.page
    nasty = "<img src=x onerror=alert(1)> <script>alert(2)</script> is \U0001f600 here. It is there."
    page.on("dialog", lambda dialog: watched.wrong.append(dialog.message))
    page.get_by_label("Answer or claim").fill(nasty)
    page.get_by_label("Evidence").fill(f"{nasty}\n\n<b>bold</b>")
    page.get_by_role("button", name="Judge").click()
    watched.done()
    assert page.locator("#result img, #result script, #result b").count() == 0
    expect(page.locator(".statement").first).to_contain_text("<img src=x onerror=alert(1)>")
    saved: dict[str, str] = {}
    for button in ("Save as a page", "Save as JSON"):
        with page.expect_download() as download:
            page.get_by_role("button", name=button).click()
        path = tmp_path / download.value.suggested_filename
        download.value.save_as(path)
        saved[path.name] = path.read_text("utf-8")
    assert json.loads(saved["isr-rag.json"])["audit"]["answer"] == nasty
    report = saved["audit.html"]
    assert "<script" not in report and "<img" not in report and not re.search(r"""(src|href)=["']?(http|//)""", report)


def test_a_question_alone_is_decided_and_saved_as_a_page(watched: Watched, tmp_path: Path) -> None:
    page = watched.page
    page.get_by_label("Question (optional").fill("What is <i>this</i>?")
    page.get_by_label("Evidence").fill("One passage.\n\nAnother <b>passage</b>.")
    page.get_by_role("button", name="Judge").click()
    watched.done()
    expect(page.locator("#verdict circle")).to_have_count(2)  # as many as there are orders of two passages
    expect(page.locator("#whole")).to_be_empty()
    with page.expect_download() as download:
        page.get_by_role("button", name="Save as a page").click()
    assert download.value.suggested_filename == "decision.html"
    download.value.save_as(tmp_path / "decision.html")
    saved = (tmp_path / "decision.html").read_text("utf-8")
    assert "Another &lt;b&gt;passage&lt;/b&gt;." in saved and "<script" not in saved and "97" in saved


def test_a_server_with_a_key_asks_for_it(browser: Browser) -> None:
    with served(worlds.KEY) as address, browser.new_context() as context:
        found = Watched(context, address)
        expect(found.page.get_by_role("alert")).to_contain_text("asks for a key")
        found.page.get_by_label("Key of this server").fill(worlds.KEY)
        found.page.get_by_label("Key of this server").press("Tab")
        expect(found.page.locator("#model")).to_contain_text("isr-rag")
        found.page.get_by_role("button", name="a supported claim").click()
        found.done()
        assert not any(worlds.KEY in url for url in found.asked)


def test_a_target_out_of_reach_is_a_row_and_not_the_end(browser: Browser) -> None:
    with served(ceiling=0.985) as address, browser.new_context() as context:  # as of the shipped calibrations
        found = Watched(context, address)
        found.page.get_by_role("button", name="a supported claim").click()
        found.done()
        rows = found.page.locator("#targets tbody tr")
        expect(rows).to_have_count(6)
        expect(rows.first).to_contain_text("out of reach of the calibration")
        expect(rows.last).to_contain_text("answers")
        found.page.get_by_label("Tolerated rate").select_option("0.01")
        found.page.get_by_role("button", name="Judge").click()
        expect(found.page.get_by_role("alert")).to_contain_text("Choose h_star >= 0.015")


def test_narrow_and_dark_screens(browser: Browser, address: str) -> None:
    settings: dict[str, Any] = {"viewport": {"width": 360, "height": 740}, "color_scheme": "dark"}
    with browser.new_context(**settings) as context:
        found = Watched(context, address)
        found.page.get_by_role("button", name="a longer answer").click()
        found.done()
        photograph(found.page, "narrow-dark")
        assert found.page.evaluate("() => document.documentElement.scrollWidth") <= 360
        ground = found.page.evaluate("() => getComputedStyle(document.body).backgroundColor")
        assert ground == "rgb(13, 17, 23)" and not found.wrong
        for name in ("Question (optional", "Answer or claim", "Evidence", "Tolerated rate"):
            assert found.page.get_by_label(name).count() == 1, name
