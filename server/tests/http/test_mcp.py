"""The tools of an agent, asked by the SDK's own client: in memory, over standard input and output, over HTTP."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, MCPError, StdioServerParameters, stdio_client
from server.tests.http import worlds
from server.tests.http.hostile import MCP_LINES, mcp
from server.tests.http.test_running import running
from tests.complexity.growth import peak

from isr_rag import ISRGate
from isr_rag.core.scorer import Scores
from isr_rag.errors import InvalidInputError
from isr_rag.references import Oracle
from isr_rag.testing import FixedScorer
from isr_rag_server.http import Limits, Settings, create_app
from isr_rag_server.http.service import Service
from isr_rag_server.http.tools import Library, mcp_server

ROOT = Path(__file__).parents[3]
MODES = ["legacy", "auto"]


def tools(gate: ISRGate | None = None, **settings: Any) -> Any:
    return mcp_server(Service(gate or worlds.gate(), Settings(**settings)))


def call(server: Any, *calls: tuple[str, dict[str, Any]], mode: str = "auto", **callbacks: Any) -> list[Any]:
    """The results of calls in one session."""

    async def run() -> list[Any]:
        async with Client(server, mode=mode) as client:
            return [await client.call_tool(name, arguments, **callbacks) for name, arguments in calls]

    return asyncio.run(run())


@pytest.mark.parametrize("mode", MODES)
def test_the_tools_are_described_with_the_form_of_what_they_return(mode: str, tmp_path: Path) -> None:
    async def listed() -> tuple[Any, str | None]:
        async with Client(tools(folder=worlds.library(tmp_path)), mode=mode) as client:
            return (await client.list_tools()).tools, client.instructions

    found, instructions = asyncio.run(listed())
    names = {tool.name: tool for tool in found}
    assert {"judge_answer", "judge_claim", "is_evidence_sufficient", "search_and_judge"} <= set(names)
    for tool in found:
        assert tool.description and tool.output_schema["properties"]["action"] and tool.annotations.read_only_hint
        assert "context" not in tool.input_schema["properties"]
    assert instructions is not None and "abstain" in instructions
    without = asyncio.run(_names(tools()))
    assert "search_and_judge" not in without and "judge_claim" in without


async def _names(server: Any) -> list[str]:
    async with Client(server) as client:
        return [tool.name for tool in (await client.list_tools()).tools]


@pytest.mark.parametrize("mode", MODES)
def test_judgements_are_those_of_the_library(mode: str) -> None:
    gate, evidence = worlds.gate(), ["a", {"text": "b", "title": "t"}]
    asked = {
        "judge_claim": {"claim": "number 990"},
        "judge_answer": {"question": "Which number 990?", "answer": "number 990"},
        "is_evidence_sufficient": {"question": "Which number 990?", "h_star": 0.2},
    }
    results = call(tools(gate), *((n, {**a, "evidence": evidence}) for n, a in asked.items()), mode=mode)
    for (_, arguments), result in zip(asked.items(), results, strict=True):
        own = gate.with_h_star(float(arguments.get("h_star", 0.05)))  # type: ignore[arg-type]
        plain = {k: v for k, v in arguments.items() if k != "h_star"}
        expected = own.decide(evidence, **plain)  # type: ignore[arg-type]
        assert not result.is_error and result.structured_content["action"] == expected.action.value
        assert result.structured_content["trusted"] == expected.p_ref
        assert result.structured_content["explanation"] == expected.explain()
        assert json.loads(result.content[0].text) == result.structured_content


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"claim": " ", "evidence": ["a"]}, "empty"),
        ({"claim": "number 1", "evidence": [""]}, "evidence[0]"),
        ({"claim": "number 1", "evidence": ["a"] * 9}, "8 are allowed"),
    ],
)
def test_a_bad_call_is_an_error_that_says_what_to_do(arguments: dict[str, Any], says: str) -> None:
    (result,) = call(tools(limits=Limits(chunks=8)), ("judge_claim", arguments))
    assert result.is_error and says in result.content[0].text


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"evidence": ["a"]}, "claim is missing"),
        ({"claim": 5, "evidence": ["a"]}, "claim must be a text"),
        ({"claim": "c", "evidence": "a"}, "evidence must be a list of passages"),
        ({"claim": "c", "evidence": ["a", 3]}, "evidence[1] must be a text or {text, title}"),
        ({"claim": "c", "evidence": [{"text": 1}]}, "evidence[0].text must be a text"),
        ({"claim": "c", "evidence": [{"title": "t"}]}, "evidence[0].text is missing"),
        ({"claim": "c", "evidence": [{"text": "a", "id\n": 1}]}, "evidence[0].id"),
        ({"claim": "c", "evidence": ["a"], "h_star": 2}, "h_star must be less than 1"),
        ({"h_star": "x"}, "claim is missing; evidence is missing; h_star must be a valid number"),
        ({"claim": "c", "evidence": list(range(7))}, "evidence[0] must be a text or {text, title}"),
        ({"claim": "c", "evidence": [{"text": "a", **dict.fromkeys("bcdefgh")}]}, "and 2 more"),
        ({"claim": "c", "evidence": ["a"], "hstar": 0.01}, "no argument hstar; it takes claim, evidence, h_star"),
    ],
)
def test_a_wrong_argument_is_named_in_one_plain_line(arguments: dict[str, Any], says: str) -> None:
    (result,) = call(tools(), ("judge_claim", arguments))
    said = result.content[0].text
    assert result.is_error and says in said and said.startswith("judge_claim: ")
    assert "\n" not in said and "pydantic" not in said and "input_value" not in said and len(said) < 300


def test_a_list_that_is_sent_as_a_text_is_read_strictly() -> None:
    texts = ['["a", {"text": "b", "title": "t"}]', '[{"text": "a", "text": "b"}]', '"[]"', "[" * 5000, "\ud800"]
    good, *bad = call(tools(), *(("judge_claim", {"claim": "number 1", "evidence": one}) for one in texts))
    assert not good.is_error and good.structured_content["chunks"] == 2
    for result in bad:
        assert result.is_error and result.content[0].text == "judge_claim: evidence must be a list of passages"


@pytest.mark.parametrize("argument", ["evidence", "h_star"])
@pytest.mark.parametrize("one", ["[]", "{}"])
def test_json_in_a_text_is_not_parsed_where_it_holds_too_much(argument: str, one: str) -> None:
    text = "[" + f"{one}," * 200_000 + "1]"
    asked = ("judge_claim", {"claim": "number 1", "evidence": ["a"], argument: text})
    (result,) = call(tools(), asked)
    assert result.is_error and peak(lambda: call(tools(), asked)) < 12 * len(text)


def test_keys_that_come_twice_are_refused() -> None:
    asked = json.dumps(mcp("judge_claim", {"claim": "number 1", "evidence": ["a"], "h_star": 0.01}))
    lines = {"Content-Type": "application/json", **dict(line.split(": ") for line in MCP_LINES)}

    async def run() -> int:
        app = create_app(worlds.gate(), Settings())
        async with await worlds.asgi(app) as asking:
            twice = asked.replace('"h_star"', '"h_star": 0.3, "h_star"')
            return int((await asking.post("/mcp", content=twice, headers=lines)).status_code)

    assert asyncio.run(run()) == 400


@pytest.mark.parametrize("text", ["[1]", '{"a": 1}', "null", '["Paris"]'])
def test_a_text_that_looks_like_json_is_a_text(text: str, tmp_path: Path) -> None:
    calls = [
        ("audit_answer", {"answer": "It is number 1.", "question": text, "evidence": ["a"]}),
        ("search_and_judge", {"claim": f"The Seine, {text}"}),
        ("search_and_judge", {"question": text, "answer": "number 1", "claim": None}),
        ("audit_answer", {"answer": "It is number 1.", "question": None, "evidence": ["a"], "h_star": "0.1"}),
    ]
    assert [one.is_error for one in call(tools(folder=worlds.library(tmp_path)), *calls)] == [False] * 4


def test_a_failing_model_is_an_error_and_never_an_answer() -> None:
    class Broken(FixedScorer):
        def score(self, requests: Any) -> list[Scores]:
            raise RuntimeError("secret path")

    (result,) = call(
        tools(ISRGate(scorer=Broken([0.9]), reference=Oracle(1.0))), ("judge_claim", {"claim": "c", "evidence": ["a"]})
    )
    assert (
        result.is_error and "secret" not in result.content[0].text and "nothing was decided" in result.content[0].text
    )


def test_an_unknown_tool_is_an_error() -> None:
    try:
        (result,) = call(tools(), ("read_file", {"path": "/etc/passwd"}))
    except MCPError as error:
        assert "read_file" in str(error)
    else:
        assert result.is_error


def test_progress_is_told() -> None:
    told: list[tuple[float, str | None]] = []

    async def note(progress: float, total: float | None, message: str | None) -> None:
        told.append((progress, message))

    call(tools(), ("judge_claim", {"claim": "number 3", "evidence": ["a", "b"]}), progress_callback=note)
    assert told == [(0, "judging by 2 passages"), (1, "answer")]


@pytest.mark.parametrize("mode", MODES)
def test_a_search_judges_what_it_finds_within_the_rounds_of_a_client(mode: str, tmp_path: Path) -> None:
    server = tools(worlds.gate(p_ref=0.5), folder=worlds.library(tmp_path), rounds=5)
    search = ("search_and_judge", {"claim": "The Seine is river number 998.", "top_k": 1})
    results = call(server, *[search] * 4, ("judge_claim", {"claim": "number 1", "evidence": ["a"]}), mode=mode)
    first = results[0].structured_content
    assert first["evidence"][0]["text"] == "The Seine is river number 0." and first["action"] == "abstain"
    assert first["rounds"] == 2 and first["looks_left"] == 3
    assert [one.is_error for one in results] == [False, False, False, True, False]
    assert results[2].structured_content["rounds"] == 1 and results[2].structured_content["looks_left"] == 0
    assert "spent its 5 rounds" in results[3].content[0].text


class Limited(Oracle):
    """A reference that reaches 90% at most."""

    def ceiling(self, predicate: str | None, *, rounds: int = 1) -> float:
        return 0.9


def test_a_target_out_of_reach_is_told_and_costs_no_round(tmp_path: Path) -> None:
    gate = ISRGate(FixedScorer([0.5]), Limited(0.5), h_star=0.3)
    search = {"claim": "The Seine is river number 998.", "top_k": 1}
    server = tools(gate, folder=worlds.library(tmp_path), rounds=2)
    bad, good = call(server, ("search_and_judge", search | {"h_star": 0.05}), ("search_and_judge", search))
    assert bad.is_error and "Choose h_star >= 0.1" in bad.content[0].text
    assert not good.is_error and good.structured_content["rounds"] == 2


def test_searches_in_parallel_share_the_rounds_and_a_bad_one_gives_them_back(tmp_path: Path) -> None:
    server = tools(worlds.gate(p_ref=0.5), folder=worlds.library(tmp_path), rounds=5)

    async def run() -> list[Any]:
        async with Client(server) as client:
            bad = await client.call_tool("search_and_judge", {})
            assert bad.is_error and "claim" in bad.content[0].text
            search = {"claim": "The Seine is river number 998.", "top_k": 1}
            return await asyncio.gather(*(client.call_tool("search_and_judge", search) for _ in range(5)))

    found = asyncio.run(run())
    assert sum(one.structured_content["rounds"] for one in found if not one.is_error) == 5


def test_the_logging_of_the_process_is_left_as_it_was() -> None:
    before = list(logging.getLogger().handlers)
    logging.getLogger().handlers.clear()
    try:
        tools()
        assert logging.getLogger().handlers == []
    finally:
        logging.getLogger().handlers[:] = before


@pytest.mark.parametrize(
    ("name", "raw"),
    [("bad.txt", b"\xff\xfe\x00x"), ("bad.pdf", b"%PDF-1.4 garbage"), ("bad.json", b"{"), ("huge.txt", None)],
)
def test_a_bad_document_of_the_folder_is_skipped_and_logged(
    name: str, raw: bytes | None, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "folder").mkdir()
    folder = worlds.library(tmp_path / "folder")
    good = len(Library(str(folder)).chunks)
    with (folder / name).open("wb") as file:
        file.truncate(2**40) if raw is None else file.write(raw)
    (tmp_path / "secret.conf").write_text("hunter2", "utf-8")
    (folder / "link.txt").symlink_to(tmp_path / "secret.conf")
    (folder / "one.txt").write_text("Seine " * 20_000, "utf-8")
    logging.getLogger("isr_rag_server.http").disabled = False  # as another test may leave it
    with caplog.at_level("WARNING", "isr_rag_server.http"):
        chunks = Library(str(folder)).chunks
    assert name in caplog.text and "linked from elsewhere" in caplog.text
    assert len(chunks) > good and max(len(chunk.text.split()) for chunk in chunks) <= 120
    assert not any("hunter2" in chunk.text for chunk in chunks)


def test_a_folder_without_documents_is_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="no file to read"):
        tools(folder=tmp_path)
    assert Library(str(worlds.library(tmp_path))).search("volcano", 3) == []


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_over_http_at_the_path_mcp(mode: str, tmp_path: Path) -> None:
    async def run(address: str) -> None:
        async with Client(f"{address}/mcp", mode=mode) as client:
            result = await client.call_tool("judge_claim", {"claim": "number 7", "evidence": ["a"]})
            assert result.structured_content["needed"] == pytest.approx(0.95)
            search = {"question": "Which river number 998 is the Loire?", "top_k": 1}
            rounds = [await client.call_tool("search_and_judge", search) for _ in range(7)]
            assert [one.is_error for one in rounds] == [False] * 6 + [True]

    with running(0.0, 8, 4, worlds.library(tmp_path)) as (process, address):
        asyncio.run(run(address))
        process.terminate()
        assert process.wait(10) is not None
        assert process.stderr is not None and "Traceback" not in process.stderr.read()


STDIO = """
from pathlib import Path
from isr_rag_server.http import Settings
from isr_rag_server.http.service import Service
from isr_rag_server.http.tools import mcp_server
from server.tests.http import worlds
mcp_server(Service(worlds.gate(), Settings(folder=Path({folder!r})))).run("stdio")
"""


@pytest.mark.slow
def test_over_standard_input_and_output(tmp_path: Path) -> None:
    program = STDIO.format(folder=str(worlds.library(tmp_path)))
    parameters = StdioServerParameters(command=sys.executable, args=["-c", program], cwd=ROOT)

    async def run() -> Any:
        async with Client(stdio_client(parameters)) as client:
            return await client.call_tool("search_and_judge", {"claim": "The Seine is river number 5."})

    result = asyncio.run(run())
    assert result.structured_content["evidence"][0]["title"] == "Seine"


def test_every_logged_decision_has_a_name_of_its_own(tmp_path: Path) -> None:
    """Clients count their requests from 1 in every session: a label would count for the decisions of all."""
    server = tools(log=tmp_path / "log.jsonl")
    for _ in range(3):
        call(server, ("judge_claim", {"claim": "number 1", "evidence": ["a"]}))
        call(server, ("audit_answer", {"answer": "It is number 1. It is number 2.", "evidence": ["a"]}))
    named = [json.loads(line)["id"] for line in (tmp_path / "log.jsonl").read_text("utf-8").splitlines()]
    assert len(set(named)) == len(named) == 9
