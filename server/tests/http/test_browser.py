"""A page of another origin in a real browser: whatever it sends to a server on this machine, nothing gets done."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

pytest.importorskip("playwright", reason="pip install 'isr-rag[dev]'")

from playwright.sync_api import Page, sync_playwright
from server.tests.http import worlds
from server.tests.http.hostile import KEY, Server, serving

pytestmark = pytest.mark.slow

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
WAYS = """
async ([address, key]) => {
  const item = JSON.stringify({claim: "c", evidence: ["e"], answer: "It is so."});
  const paths = ["/v1/decide", "/v1/audit", "/v1/index", "/v1/documents?name=a.txt", "/mcp", "/v1/models", "/metrics"];
  const kinds = ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "application/json", ""];
  const told = [];
  const note = async (way, answer) => {
    try {
      const response = await answer;
      told.push([way, response.type, response.type === "opaque" ? "" : await response.text()]);
    } catch (error) {
      told.push([way, "error", ""]);
    }
  };
  for (const path of paths) {
    for (const mode of ["no-cors", "cors"]) {
      for (const method of ["GET", "POST", "PUT", "DELETE", "HEAD"]) {
        for (const kind of kinds) {
          const body = method === "GET" || method === "HEAD" ? undefined : new Blob([item], {type: kind});
          const headers = key && mode === "cors" ? {Authorization: `Bearer ${key}`} : {};
          await note(`${mode} ${method} ${path} ${kind}`, fetch(address + path, {method, mode, body, headers}));
        }
      }
    }
    navigator.sendBeacon(address + path, item);
    navigator.sendBeacon(address + path, new Blob([item], {type: "text/plain"}));
    const load = (name, attribute) => new Promise((done) => {
      const element = document.createElement(name);
      element.onload = () => { told.push([`${name} ${path}`, "loaded", ""]); done(); };
      element.onerror = done;
      element[attribute] = address + path;
      if (name === "link") element.rel = "stylesheet";
      document.body.append(element);
      setTimeout(done, 1000);
    });
    await load("img", "src");
    await load("script", "src");
    await load("link", "href");
    for (const enctype of ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data"]) {
      for (const method of ["post", "get"]) {
        const frame = document.createElement("iframe"), form = document.createElement("form");
        frame.name = `f${Math.random()}`;
        Object.assign(form, {method, enctype, action: address + path, target: frame.name});
        const field = document.createElement("input");
        Object.assign(field, {name: item, value: "x"});
        form.append(field);
        document.body.append(frame, form);
        const ended = new Promise((done) => { frame.onload = done; setTimeout(done, 1000); });
        form.submit();
        await ended;
      }
    }
  }
  return told;
}
"""


class Site:
    """A page elsewhere: on another port of this machine, which to a browser is another origin of the same site."""

    def __init__(self) -> None:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(200)
                self.send_header("Content-Type", "text/html")
                self.end_headers()
                self.wfile.write(b"<!doctype html><title>elsewhere</title><body>elsewhere</body>")

            def log_message(self, format: str, *args: Any) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self._server.server_port
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    found = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    if found is None:
        pytest.skip("no Chromium on the path")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=ARGUMENTS)
        yield browser.new_page()
        browser.close()


def statuses(server: Server) -> dict[tuple[str, str], float]:
    """How many requests of each path got which status."""
    _, text = server.ask("GET", "/metrics")
    found = {}
    for line in text.decode().splitlines():
        if line.startswith("isr_rag_requests_total{"):
            labels, _, count = line.rpartition(" ")
            path, status = (part.split('"')[1] for part in labels.split(",")[:2])
            found[path, status] = float(count)
    return found


@pytest.mark.parametrize("name", ["127.0.0.1", "localhost"])
@pytest.mark.parametrize("key", [None, KEY])
def test_a_page_of_another_origin_gets_nothing_done(page: Page, name: str, key: str | None) -> None:
    site = Site()
    try:
        with serving(key=key) as server:
            page.goto(f"http://{name}:{site.port}/")  # the other port, and the other name, of this machine
            told = page.evaluate(WAYS, [server.address, key])
            assert len(told) >= 350
            assert [one for one in told if one[1] not in ("error", "opaque")] == []
            asked = statuses(server)
            asked.pop(("/metrics", "200"), None)  # this test's own
            assert sum(asked.values()) >= 100 and {status for _, status in asked} == {"403"}, asked
            assert "isr_rag_decisions_total{" not in server.ask("GET", "/metrics")[1].decode()
    finally:
        site.close()


def test_a_link_from_elsewhere_leads_to_the_page_and_the_page_works(page: Page) -> None:
    site = Site()
    try:
        with serving() as server:
            page.goto(f"http://localhost:{site.port}/")
            page.evaluate("address => { location.href = address; }", server.address + "/")
            page.wait_for_url(server.address + "/")
            page.wait_for_function("document.getElementById('model').textContent.includes('isr-rag')")
            item = json.dumps(worlds.item(7))
            status = page.evaluate(
                """async (item) => (await fetch("v1/decide", {method: "POST", body: item,
                     headers: {"Content-Type": "application/json"}})).status""",
                item,
            )
            assert status == 200
    finally:
        site.close()
