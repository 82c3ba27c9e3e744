"""The fixture in a real run of pytest."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pytest_isr_rag.plugin import compare, contains, read_questions

pytest_plugins = ["pytester"]
TEST = """
def test_rag(rag_regression):
    wrong = {wrong}
    rag_regression(lambda question: None if question == "q0" else "no" if question in wrong else "Yes, it is.")
"""


@pytest.fixture
def folder(pytester: pytest.Pytester) -> pytest.Pytester:
    lines = (json.dumps({"id": f"{i}", "question": f"q{i}", "answers": ["yes"]}) for i in range(200))
    pytester.path.joinpath("rag_questions.jsonl").write_text("\n".join(lines), "utf-8")
    return pytester


def run(folder: pytest.Pytester, wrong: list[str], *options: str) -> pytest.RunResult:
    folder.makepyfile(test_rag=TEST.format(wrong=wrong))
    loaded = ("-p", "pytest_isr_rag.plugin", "-p", "no:isr_rag_regression")
    return folder.runpytest_inprocess(*loaded, *options)


def test_a_baseline_is_written_once_and_then_compared_with(folder: pytest.Pytester) -> None:
    missing = run(folder, [])
    missing.assert_outcomes(failed=1)
    missing.stdout.fnmatch_lines(["*run pytest --rag-update once*"])
    run(folder, ["q1"], "--rag-update").assert_outcomes(passed=1)
    run(folder, ["q1", "q2", "q3"]).assert_outcomes(passed=1)  # two more are no proof
    worse = run(folder, [f"q{i}" for i in range(1, 20)])
    worse.assert_outcomes(failed=1)
    worse.stdout.fnmatch_lines(["*is wrong more often than the baseline: wrong in 19 of 200 questions, before in 1 *"])


def test_tests_that_share_a_baseline_keep_their_own_outcomes(folder: pytest.Pytester) -> None:
    two = TEST.format(wrong="[]") + TEST.format(wrong=[f"q{i}" for i in range(1, 20)]).replace("test_rag", "test_other")
    loaded = ("-p", "pytest_isr_rag.plugin", "-p", "no:isr_rag_regression")
    folder.makepyfile(test_rag=two)
    for options in (("--rag-update",), ()):
        folder.runpytest_inprocess(*loaded, *options).assert_outcomes(passed=2)
    folder.makepyfile(test_rag=two.replace("def test_other", "def test_new"))
    found = folder.runpytest_inprocess(*loaded)
    found.assert_outcomes(passed=1, failed=1)
    found.stdout.fnmatch_lines(["*holds nothing of this test*"])


def test_a_second_pipeline_in_one_test_does_not_take_the_baseline_of_the_first(folder: pytest.Pytester) -> None:
    folder.makepyfile(test_rag=TEST.format(wrong=[]) + "    rag_regression(lambda question: None)\n")
    loaded = ("-p", "pytest_isr_rag.plugin", "-p", "no:isr_rag_regression")
    found = folder.runpytest_inprocess(*loaded, "--rag-update")
    found.assert_outcomes(failed=1)
    found.stdout.fnmatch_lines(["*put the other in a test of its own*"])


@pytest.mark.parametrize("changed", [{"question": "q00"}, {"answers": ["no"]}])
def test_a_baseline_of_the_same_ids_with_other_questions_or_answers_is_not_compared_with(
    folder: pytest.Pytester, changed: dict[str, object]
) -> None:
    run(folder, [], "--rag-update").assert_outcomes(passed=1)
    path = folder.path.joinpath("rag_questions.jsonl")
    lines = path.read_text("utf-8").split("\n")
    path.write_text("\n".join(lines[::-1]), "utf-8")
    run(folder, []).assert_outcomes(passed=1)  # their order is not theirs
    path.write_text("\n".join([json.dumps(json.loads(lines[0]) | changed), *lines[1:]]), "utf-8")
    other = run(folder, [])
    other.assert_outcomes(failed=1)
    other.stdout.fnmatch_lines(["*is of other questions*"])


@pytest.mark.parametrize("given", ["14", '{"answer": "yes"}'])
def test_what_is_no_text_is_refused_before_a_judge_calls_it_wrong(folder: pytest.Pytester, given: str) -> None:
    judged = f"rag_regression(lambda question: {given}, judge=lambda answer, record: False)"
    folder.makepyfile(test_rag=f"def test_rag(rag_regression):\n    {judged}\n")
    found = folder.runpytest_inprocess("-p", "pytest_isr_rag.plugin", "-p", "no:isr_rag_regression", "--rag-update")
    found.assert_outcomes(failed=1)
    found.stdout.fnmatch_lines(["the pipeline gave a * it must return a text, or None where it abstains"])
    assert not folder.path.joinpath("rag_baseline.json").exists()


def test_the_header_says_what_the_questions_can_show(folder: pytest.Pytester) -> None:
    found = run(folder, [], "--rag-update", "-v")
    found.stdout.fnmatch_lines(["rag: 200 questions show a change for the worse of 10% of them *"])


def test_a_file_that_holds_no_questions_is_refused(folder: pytest.Pytester) -> None:
    folder.path.joinpath("rag_questions.jsonl").write_text('{"id": 1}', "utf-8")
    assert run(folder, []).ret == pytest.ExitCode.USAGE_ERROR


def test_an_answer_that_is_no_list_is_refused_and_lines_end_with_newlines_alone(tmp_path: Path) -> None:
    path = tmp_path / "questions.jsonl"
    for wrong in ('"English Channel"', "[null]", "[true]", '{"a": 1}', "[[5]]"):
        path.write_text(f'{{"id": 1, "question": "q", "answers": {wrong}}}\n', "utf-8")
        with pytest.raises(pytest.UsageError, match="list of texts or numbers"):
            read_questions(path)
    path.write_text('{"id": 1, "question": "a\u2028b", "answers": ["x"]}\n', "utf-8")
    assert read_questions(path)[0]["question"] == "a\u2028b"


def test_more_right_answers_are_no_regression_however_the_questions_are_called() -> None:
    before = {f"billing-{i}": "right" for i in range(8)} | {f"refunds-{i:02}": "wrong" for i in range(12)}
    now = {name: "wrong" if name.startswith("b") else "right" for name in before}
    assert compare(before, now) == []


@pytest.mark.parametrize(
    ("answer", "wanted", "right"),
    [
        ("It is replaced after 15 years.", "5 years", False),
        ("It costs 1,500 euros.", "500 euros", False),
        ("About 5.25 litres.", "5", False),
        ("I know nothing about it.", "no", False),
        ("No. It was replaced after 5 years, in 1905.", "5 YEARS", True),
        ("No.", "no", True),
        ("It costs US$5.", "$5", True),
        ("首都は東京です。", "東京", True),
        ("It costs 1 500 euros.", "500 euros", False),
        ("It costs 1\u202f500 euros.", "500 euros", False),
        ("It costs 1'500.50 francs.", "500.50 francs", False),
        ("There are 1 500 000 of them.", "1 500", False),
        ("There are 1 500 000 of them.", "1", False),
        ("In 2023 500 euros were paid.", "500 euros", True),
        ("1,2,3", "2", False),
        ("1, 2, 3", "2", True),
        ("It is -5 degrees.", "5 degrees", False),
        ("It is -5 degrees.", "-5 degrees", True),
        ("About .5 litres.", "5 litres", False),
        ("Between 5-10 years.", "10 years", True),
        ("It is _Paris_, or __Lyon__.", "Paris", True),
        ("It is _Paris_, or __Lyon__.", "Lyon", True),
        ("the English\nChannel", "English Channel", True),
        ("500\u00a0euros", "500 euros", True),
        ("a cafe\u0301", "café", True),
        ("a cafe\u0301", "cafe", False),
        ("दिल्ली", "दिल", False),
        ("दिल्ली में", "दिल्ली", True),
        ("𠮷野家です", "野家", True),
    ],
)
def test_an_answer_is_right_by_whole_words_and_numbers(answer: str, wanted: str, right: bool) -> None:
    assert contains(answer, {"answers": [wanted]}) == right


def test_an_empty_answer_is_refused_since_it_would_be_in_every_answer(tmp_path: Path) -> None:
    path = tmp_path / "questions.jsonl"
    path.write_text('{"id": 1, "question": "q", "answers": [" "]}\n', "utf-8")
    with pytest.raises(pytest.UsageError, match="an answer is empty"):
        read_questions(path)
