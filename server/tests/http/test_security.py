"""What hostile requests try, against a server in a process of its own: tried, and without effect."""

from __future__ import annotations

import json
import socket
import threading
from pathlib import Path
from typing import Any

import httpx
import pytest
from server.tests.http import worlds
from server.tests.http.hostile import serving
from server.tests.http.test_running import raw

pytestmark = pytest.mark.slow

WRONG = "wrong-key-of-somebody-else"


class Listener:
    """Somebody who would notice a request."""

    def __init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        self.noticed = 0
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            self.noticed += 1
            connection.close()

    def close(self) -> None:
        self._socket.close()


def test_tried_and_without_effect(tmp_path: Path) -> None:
    listener = Listener()
    secret = tmp_path / "secret.txt"
    secret.write_text("the content of the secret", "utf-8")
    texts: list[str] = []  # every response
    counts: dict[str, int] = {}

    def tried(attack: str, response: httpx.Response, *statuses: int) -> httpx.Response:
        assert response.status_code in statuses, (attack, response.status_code, response.text[:200])
        texts.append(str(response.headers) + response.text)
        counts[attack] = counts.get(attack, 0) + 1
        return response

    def decide(**more: Any) -> dict[str, Any]:
        return {"claim": "c", "evidence": ["e"], **more}

    log = tmp_path / "log.jsonl"
    with (
        (tmp_path / "stderr").open("wb") as errors,
        serving(key=worlds.KEY, log=str(log), stderr=errors) as server,
        httpx.Client(
            base_url=(address := server.address), headers={"Authorization": f"Bearer {worlds.KEY}"}, timeout=20
        ) as client,
    ):
        # 1. files of the server's machine
        inside = [
            "..%2f..%2f..%2fetc%2fpasswd",
            "%2e%2e/%2e%2e/settings.py",
            "..\\..\\log.py",
            f"/{secret}",
            "%00",
            ".",
        ]
        for name in inside:
            tried("path traversal", client.get(f"/page/{name}"), 404, 307)
        for name in (str(secret), f"../..{secret}", "/etc/passwd", f"file://{secret}", "a\0b.txt"):
            answer = tried(
                "path traversal", client.post("/v1/documents", params={"name": name}, content=b"Only this."), 200
            )
            assert [chunk["text"] for chunk in answer.json()["chunks"]] == ["Only this."]
        # 2. requests to elsewhere
        page = f'<html><head><link rel=stylesheet href="{listener.url}/a"><base href="{listener.url}"></head>'
        page += "<body><p>Text of a page."
        page += f'</p><img src="{listener.url}/b"><iframe src="{listener.url}/c"></iframe></body></html>'
        entity = (
            f'<!DOCTYPE a [<!ENTITY x SYSTEM "{listener.url}/d">]><html><body><p>Text &x; of a page.</p></body></html>'
        )
        for content, name in ((page, "a.html"), (entity, "a.xhtml"), (f"See {listener.url}/e.", listener.url)):
            tried(
                "requests to elsewhere", client.post("/v1/documents", params={"name": name}, content=content), 200, 422
            )
        linked = [
            listener.url,
            {"text": f"[link]({listener.url}/f) ![picture]({listener.url}/g)", "title": listener.url},
        ]
        tried("requests to elsewhere", client.post("/v1/decide", json=decide(evidence=linked)), 200)
        tried(
            "requests to elsewhere",
            client.post("/v1/audit?html=true", json={"answer": listener.url, "evidence": linked}),
            200,
        )
        # 3. markup and escapes
        for nasty in (
            "<script>alert(1)</script>",
            "<img src=x onerror=alert(1)>",
            "\x1b[2J\x1b]0;title\x07",
            "\u202e\u2028 turned",
            "\ud800",
        ):
            body = json.dumps({"claim": f"break {nasty}", "evidence": [nasty, {"text": nasty, "title": nasty}]})
            tried(
                "markup and escapes",
                client.post("/v1/decide", content=body, headers={"Content-Type": "application/json"}),
                502,
            )
            audit = json.dumps({"answer": f"{nasty} It is so.", "question": nasty, "evidence": ["a", f"x {nasty}"]})
            found = tried(
                "markup and escapes",
                client.post("/v1/audit?html=true", content=audit, headers={"Content-Type": "application/json"}),
                200,
                422,
            )
            if found.status_code == 200:
                report = found.json()["html"]
                assert (
                    "<script" not in report and "<img" not in report and "\x1b" not in report and "\u202e" not in report
                )
            tried(
                "markup and escapes",
                client.post(
                    "/v1/decide", content=json.dumps({nasty: nasty}), headers={"Content-Type": "application/json"}
                ),
                422,
            )
        # 4. headers
        for identifier in ("a%0d%0aX-Evil: 1", "a\tb", "a" * 500, "<b>"):
            answer = tried(
                "headers", client.post("/v1/decide", json=decide(), headers={"X-Request-ID": identifier}), 200
            )
            assert answer.headers["x-request-id"] != identifier and "x-evil" not in answer.headers
        for head in (
            "X-Request-ID: a\r\n X-Evil: 1",
            "Host: a\r\nHost: b",
            "Content-Length: 5\r\nTransfer-Encoding: chunked",
        ):
            reply = raw(address, f"POST /v1/decide HTTP/1.1\r\nHost: localhost\r\n{head}\r\n\r\nhello".encode(), wait=3)
            assert reply[:12] in (b"", b"HTTP/1.1 400", b"HTTP/1.1 401") and b"\r\nX-Evil" not in reply
            counts["headers"] += 1
        # 5. keys
        stranger = httpx.Client(base_url=address, verify=False)
        for key in (WRONG, f"{worlds.KEY}x", worlds.KEY[:-1], "x", "' OR 1=1"):
            refused = stranger.post("/v1/decide", json=decide(), headers={"Authorization": f"Bearer {key}"})
            tried("keys", refused, 401, 403)
        tried("keys", stranger.get(f"/metrics?key={worlds.KEY}"), 401)
        for path in (
            "/v1/models",
            "/metrics",
            "/mcp",
            "/v1/../metrics",
            "//metrics",
            "/page/../metrics",
            "/page/%2e%2e/metrics",
        ):
            reply = raw(address, f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode(), wait=3)
            assert reply[9:12] in (b"401", b"404") and b"isr_rag_" not in reply, (path, reply[:100])
            counts["keys"] += 1
        server.process.terminate()
        server.process.wait(15)
    listener.close()
    written = (tmp_path / "stderr").read_text("utf-8", "replace")
    told = "".join([*texts, written, log.read_text("utf-8")])
    assert listener.noticed == 0
    assert worlds.KEY not in told and WRONG not in told
    assert "content of the secret" not in told and "root:" not in told
    assert "\x1b" not in written and "onerror" not in written and "cannot read" not in written
    assert "builtins.RuntimeError at" in written  # the failures were logged, without the scorer's own words
    assert "onerror" not in log.read_text("utf-8")
    assert sum(counts.values()) >= 50, counts
