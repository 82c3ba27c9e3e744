"""Tiny raw folders in the formats of the excerpts and of the original releases."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace

FIRST = ["Ada", "Boris", "Clara", "David", "Elena", "Felix", "Greta", "Henry", "Ines", "Jonas"]
LAST = ["Abbot", "Barlow", "Cramer", "Dalton", "Eames", "Farrow"]
CITIES = ["Arden", "Brill", "Corby", "Dover", "Exeter", "Fowey", "Goole", "Hythe", "Ilkley", "Jarrow"]
PEOPLE = [f"{first} {last}" for last in LAST for first in FIRST]


def write_lines(path: Path, rows: list[object]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def write_json(path: Path, value: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value), encoding="utf-8")


def life(i: int) -> str:
    return f"{PEOPLE[i]} -LRB- born {1900 + i} -RRB- is an American actor who was born in {CITIES[i % 10]} ."


def film(i: int) -> str:
    return f"Film {i} is a {1950 + i} drama film directed by {PEOPLE[i]} ."


@pytest.fixture
def tokenizer(tmp_path: Path) -> str:
    words = Tokenizer(WordLevel({"[UNK]": 0}, unk_token="[UNK]"))
    words.pre_tokenizer = Whitespace()
    path = tmp_path / "words.json"
    words.save(str(path))
    return str(path)


@pytest.fixture
def excerpts(tmp_path: Path) -> Path:
    """A raw folder with thirty records or so of each source."""
    raw = tmp_path / "raw"
    write_fever(raw)
    write_lines(raw / "hotpotqa/merged_hotpot.jsonl", [hotpot(i) for i in range(30)])
    write_lines(
        raw / "hotpotqa/merged_fullwiki_incomplete.jsonl",
        [hotpot(i) | {"context": hotpot(i)["context"][1:]} for i in range(30, 36)],
    )
    write_lines(raw / "nq_open/nq-open-oracle.jsonl", [nq(i) for i in range(30)])
    write_json(raw / "popqa/popqa_1000_gold_paragraphs.json", [popqa(i) for i in range(30)])
    write_json(raw / "controls_recency/timeqa_human_annotated_train.json", [timeqa(i) for i in range(12)])
    write_lines(
        raw / "corpus/wiki_sentences.jsonl",
        [
            {"title": f"Film {i}", "sent_id": 0, "text": film(i), "source": "x", "snapshot": "2018", "split": ""}
            for i in range(60)
        ],
    )
    return raw


def write_fever(raw: Path) -> None:
    claims = [
        {
            "claim": f"{PEOPLE[i]} was born in {CITIES[i % 10] if i % 2 else CITIES[(i + 1) % 10]}.",
            "label": "SUPPORTS" if i % 2 else "REFUTES",
            "evidence": [life(i)],
        }
        for i in range(40)
    ]
    write_lines(raw / "fever/athnlp_validation.jsonl", claims[:20])
    write_lines(raw / "fever/athnlp_test.jsonl", claims[20:])
    labelled = [
        {"id": i, "claim": c["claim"], "label": c["label"], "evidence_pages": [PEOPLE[i].replace(" ", "_")]}
        for i, c in enumerate(claims)
    ]
    open_claims = [
        {"id": 100 + i, "claim": f"{PEOPLE[i]} owns a boat.", "label": "NOT ENOUGH INFO", "evidence_pages": []}
        for i in range(20)
    ]
    write_json(raw / "fever/labelled_dev_19998.json", labelled + open_claims)


def hotpot(i: int) -> dict[str, object]:
    return {
        "_id": f"h{i}",
        "question": f"Where was the director of Film {i} born?",
        "answer": CITIES[i % 10],
        "type": "bridge",
        "supporting_facts": [[f"Film {i}", 0], [PEOPLE[i], 0]],
        "context": [
            [f"Film {i}", [f"Film {i} is a film directed by {PEOPLE[i]}.", " It is long."]],
            [PEOPLE[i], [f"{PEOPLE[i]} was born in {CITIES[i % 10]}.", " The career was short."]],
            [f"Place {i}", [f"Another director came from {CITIES[(i + 3) % 10]}."]],
        ],
    }


def nq(i: int) -> dict[str, object]:
    text = f"The bridge of {CITIES[i % 10]} number {i} was opened in {1800 + i}. It is {20 + i} metres long."
    return {
        "question": f"when was bridge number {i} of {CITIES[i % 10]} opened",
        "answers": [str(1800 + i)],
        "ctxs": [{"title": f"Bridge {i}", "text": text, "isgold": True, "hasanswer": True}],
    }


def popqa(i: int) -> dict[str, object]:
    return {
        "id": i,
        "question": f"In what city was Keeper {i} born?",
        "prop": "place of birth",
        "s_pop": 30 + 10 * i,
        "possible_answers": json.dumps([CITIES[i % 10]]),
        "paragraphs": [
            {"title": f"Keeper {i}", "text": f"Keeper {i} is a goalkeeper. He was born in {CITIES[i % 10]}."},
            {"title": CITIES[i % 10], "text": f"{CITIES[i % 10]} is a city."},
        ],
    }


def timeqa(i: int) -> dict[str, object]:
    one, two = PEOPLE[i], PEOPLE[i + 12]
    paragraph = f"The office was held by {one} from 1950 to 1960 . After that {two} held the office from 1961 to 1970 ."
    places = [
        {"para": 1, "from": paragraph.index(name), "end": paragraph.index(name) + len(name), "answer": name}
        for name in (one, two)
    ]
    return {
        "index": f"/wiki/Office_{i}#P1",
        "link": f"/wiki/Office_{i}",
        "questions": [
            [f"Who held Office {i} from 1950 to 1960?", [places[0]]],
            [f"Who held Office {i} from 1961 to 1970?", [places[1]]],
            [f"Who held Office {i} from 1980 to 1981?", [{"para": 0, "from": 0, "end": 0, "answer": ""}]],
        ],
        "paras": [f"Office {i}", paragraph],
    }


@pytest.fixture
def originals(tmp_path: Path) -> Path:
    """A raw folder in the formats of the original releases."""
    raw = tmp_path / "originals"
    write_lines(
        raw / "fever/shared_task_dev.jsonl",
        [
            {
                "id": i,
                "verifiable": "VERIFIABLE",
                "label": "SUPPORTS" if i % 2 else "REFUTES",
                "claim": f"{PEOPLE[i]} was born in {CITIES[i % 10] if i % 2 else CITIES[(i + 1) % 10]}.",
                "evidence": [[[i, i, PEOPLE[i].replace(" ", "_"), 1]]],
            }
            for i in range(20)
        ]
        + [
            {
                "id": 99,
                "verifiable": "NOT VERIFIABLE",
                "label": "NOT ENOUGH INFO",
                "claim": f"{PEOPLE[3]} owns a boat.",
                "evidence": [[[108548, None, None, None]]],
            }
        ],
    )
    pages = [
        {
            "id": PEOPLE[i].replace(" ", "_"),
            "text": life(i),
            "lines": f"0\t{PEOPLE[i]} has a career .\n1\t{life(i)}\tAmerican\tUnited_States\n2\t",
        }
        for i in range(20)
    ]
    (raw / "fever").mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(raw / "fever/wiki-pages.zip", "w") as archive:
        archive.writestr("wiki-pages/wiki-001.jsonl", "".join(json.dumps(page) + "\n" for page in pages))
    write_json(raw / "hotpotqa/hotpot_dev_distractor_v1.json", [hotpot(i) for i in range(20)])
    write_lines(
        raw / "nq_open/NQ-open.dev.jsonl",
        [{"question": f"which film did {PEOPLE[i].lower()} direct", "answer": [f"Film {i}"]} for i in range(20)],
    )
    header = "id\tsubj\tprop\tobj\ts_pop\to_pop\ts_wiki_title\tquestion\tpossible_answers"
    rows = [
        f"{i}\t{PEOPLE[i]}\tplace of birth\t{CITIES[i % 10]}\t{20 + i}\t5\t{PEOPLE[i]}\t"
        f'In what city was {PEOPLE[i]} born?\t"[""{CITIES[i % 10]}""]"'
        for i in range(20)
    ]
    (raw / "popqa").mkdir()
    (raw / "popqa/popqa.tsv").write_text("\n".join([header, *rows]) + "\n", encoding="utf-8")
    return raw
