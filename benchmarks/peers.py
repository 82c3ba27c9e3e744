"""Peers and this gate on one set: which score ranks supported claims above unsupported ones, and at what price.

    python benchmarks/peers.py --pairs 30 --items scifact.jsonl --take 40 --json peers.json

The set: pairs of a true statement and its near-miss from `isr_lab.contrast`, each among its document's five chunks,
and with --items labelled claims as `isr-lab mix curriculum` writes them (JSONL). Every method sees the same items. What
needs a model gets the adjudicator's base model, without its adapter. Each method runs in a process of its
own, and its results are kept beside --json, so that a run that was stopped goes on.

What the rows compute:

- word overlap: share of the claim's words (four letters or more, names, numbers) in the chunk that has most of them;
- BM25: the best chunk's score divided by the claim's score against itself, in an index of all chunks of the set;
- TF-IDF and LSA: largest cosine of claim and chunk, scikit-learn, fitted on all chunks of the set (100 components);
- asked once: the base model's probability of "yes" among "yes" and "no";
- sampled: five verdicts sampled at temperature 1, as uqlm's exact match counts them: the share that says yes;
- hallbayes: the budget as `scripts/hallucination_toolkit.py` of its repository computes it (decision prompts, six
  evidence-erased and permuted skeletons, clip 12, Laplace floor of three samples, temperature 0.5), with the exact
  probabilities of its two decisions in place of three samples; ranked by its ISR, cases that it would refuse last;
- this gate: p_ref of the adjudicator's shipped calibration, and q between equal values of it.

Seconds are of processor time per item, one thread, loading left out.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from measuring import machine

from isr_lab import metrics
from isr_lab.contrast.data import load_documents
from isr_rag._util.bm25 import Bm25
from isr_rag._util.files import write_json

H_STARS = (0.05, 0.1, 0.2)
VERDICTS, SKELETONS, SAMPLES, CLIP = 5, 6, 3, 12.0
_WORD = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class Claim:
    """A claim with its evidence; `part` names where it is from, `group` what it is not independent of."""

    id: str
    part: str
    group: str
    claim: str
    chunks: tuple[str, ...]
    label: int


def draw(pairs: int, files: Sequence[Path], take: int, seed: int) -> list[Claim]:
    """The set, the same for the same arguments."""
    rng = random.Random(seed)
    twins = [(document, twin) for document in load_documents() for twin in document.twins]
    drawn: list[Claim] = []
    for document, twin in rng.sample(twins, pairs):
        for label, text in ((1, twin.true), (0, twin.false)):
            drawn.append(Claim(f"{twin.id}:{label}", "near-misses", document.id, text, document.chunks, label))
    for path in files:
        lines = [json.loads(line) for line in path.read_text("utf-8").split("\n") if line]
        for label in (0, 1):
            of_label = [one for one in lines if one["label"] == label and one.get("claim")]
            for one in rng.sample(of_label, min(take // 2, len(of_label))):
                chunks = tuple(chunk["text"] for chunk in one["chunks"])
                drawn.append(Claim(one["id"], one["source"], one.get("group", one["id"]), one["claim"], chunks, label))
    return drawn


def overlap(claims: Sequence[Claim]) -> Iterator[float]:
    """Share of a claim's words in its best chunk."""
    for one in claims:
        wanted = _counted(one.claim)
        yield max(len(wanted & _counted(chunk)) / max(1, len(wanted)) for chunk in one.chunks)


def _counted(text: str) -> set[str]:
    return {word.casefold() for word in _WORD.findall(text) if len(word) >= 4 or word[0].isupper() or word.isdigit()}


def bm25(claims: Sequence[Claim]) -> Iterator[float]:
    """Best chunk against the claim's score with itself."""
    texts = list(dict.fromkeys(chunk for one in claims for chunk in one.chunks))
    place = {text: i for i, text in enumerate(texts)}
    index = Bm25(texts + [one.claim for one in claims])
    for i, one in enumerate(claims):
        scores = index.scores(one.claim)
        own = float(scores[len(texts) + i])
        yield max(float(scores[place[chunk]]) for chunk in one.chunks) / own if own else 0.0


def tfidf(claims: Sequence[Claim]) -> Iterator[float]:
    """Largest cosine of TF-IDF vectors."""
    yield from _cosines(claims, components=None)


def lsa(claims: Sequence[Claim]) -> Iterator[float]:
    """Largest cosine in 100 components of the TF-IDF vectors: the embedding that needs no weights from a hub."""
    yield from _cosines(claims, components=100)


def _cosines(claims: Sequence[Claim], components: int | None) -> Iterator[float]:
    from sklearn.decomposition import TruncatedSVD
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.pipeline import Pipeline
    from sklearn.preprocessing import Normalizer

    steps: list[Any] = [("tfidf", TfidfVectorizer(stop_words="english", sublinear_tf=True))]
    if components is not None:
        steps += [("svd", TruncatedSVD(components, random_state=0)), ("unit", Normalizer())]
    texts = list(dict.fromkeys(chunk for one in claims for chunk in one.chunks))
    embed = Pipeline(steps).fit(texts)
    for one in claims:
        cosines = embed.transform([one.claim]) @ embed.transform(list(one.chunks)).T
        yield float(np.max(cosines.toarray() if hasattr(cosines, "toarray") else cosines))


class Base:
    """The adjudicator's base model without its adapter, in bfloat16 where the processor has it."""

    def __init__(self) -> None:
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer

        from isr_rag.scorers import embedded
        from isr_rag.scorers.local import lean

        path = embedded.setup()
        dtype = torch.bfloat16 if lean.computes_bfloat16() else torch.float32
        self.tokenizer: Any = AutoTokenizer.from_pretrained(path)
        self.model: Any = AutoModelForCausalLM.from_pretrained(path, dtype=dtype).eval()

    def next_token(self, system: str, user: str, said: str = "") -> np.ndarray[Any, Any]:
        """Log-probabilities of the token that follows a prompt and the beginning of a reply."""
        import torch

        turns = [{"role": "system", "content": system}, {"role": "user", "content": user}]
        text = self.tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True) + said
        ids = self.tokenizer(text, return_tensors="pt", add_special_tokens=False).input_ids
        with torch.inference_mode():
            logits = self.model(ids, logits_to_keep=1).logits[0, -1].float()
        return np.asarray(torch.log_softmax(logits, dim=-1).numpy(), dtype=np.float64)

    def tokens(self, *words: str) -> list[int]:
        """First tokens of words, each as it is and with a space in front."""
        return sorted({self.tokenizer.encode(p + w, add_special_tokens=False)[0] for w in words for p in ("", " ")})


_JUDGE = "You judge claims by the evidence alone. Reply with one word: yes or no."


def _verdict(one: Claim) -> str:
    evidence = "\n".join(f"- {chunk}" for chunk in one.chunks)
    return f"Evidence:\n{evidence}\n\nClaim: {one.claim}\nDoes the evidence support the claim? Reply yes or no."


def asked_once(claims: Sequence[Claim], base: Base) -> Iterator[float]:
    """Probability of yes among yes and no."""
    yes, no = base.tokens("yes", "Yes"), base.tokens("no", "No")
    for one in claims:
        logs = base.next_token(_JUDGE, _verdict(one))
        p_yes, p_no = np.exp(logs[yes]).sum(), np.exp(logs[no]).sum()
        yield float(p_yes / (p_yes + p_no))


def sampled(claims: Sequence[Claim], base: Base) -> Iterator[float]:
    """Share of five verdicts, sampled at temperature 1, that say yes; a verdict is read off its first token."""
    yes = set(base.tokens("yes", "Yes"))
    for one in claims:
        p = np.exp(base.next_token(_JUDGE, _verdict(one)))
        rng = np.random.default_rng(list(one.id.encode()))
        yield sum(int(token) in yes for token in rng.choice(len(p), size=VERDICTS, p=p / p.sum())) / VERDICTS


_HALLBAYES = (
    "You are a safety-critical QA assistant. Decide whether to answer based on the provided prompt and its internal "
    "evidence/context. If evidence is insufficient or conflicting, refuse. Respond with JSON only."
)
_DECIDE = '\n\nReturn only JSON: {"decision":"answer"} or {"decision":"refuse"}.'


def hallbayes(claims: Sequence[Claim], base: Base) -> Iterator[dict[str, Any]]:
    """ISR of its budget with its decisions at each h*; see the module's text."""
    answer, refuse = base.tokens("answer"), base.tokens("refuse")

    def decides(prompt: str) -> float:
        logs = base.next_token(_HALLBAYES, prompt.strip() + _DECIDE, '{"decision":"') / 0.5  # its temperature
        p = np.exp(logs - logs.max())
        return float(p[answer].sum() / (p[answer].sum() + p[refuse].sum()))

    for one in claims:
        lines = [f"Is it true that {one.claim}", "Evidence: " + " ".join(one.chunks), "Answer from the evidence."]
        skeletons: list[str] = []
        for seed in range(SKELETONS):
            erased = ["Evidence: […]", lines[2]]
            random.Random(seed).shuffle(erased)
            skeletons.append("\n".join([lines[0], *erased]))
        known = {prompt: decides(prompt) for prompt in dict.fromkeys(skeletons)}  # equal ones are asked once
        q, full = [known[prompt] for prompt in skeletons], decides("\n".join(lines))
        says_answer = full >= 0.5
        p_y = full if says_answer else 1.0 - full
        priors = q if says_answer else [1.0 - one_q for one_q in q]
        gains = [min(max(math.log(max(p_y, 1e-12)) - math.log(max(prior, 1e-12)), 0.0), CLIP) for prior in priors]
        budget, q_lo = sum(gains) / len(gains), max(min(q), 1.0 / (SAMPLES + 2))
        ratio = {h: budget / max(_kl(1.0 - h, q_lo), 1e-12) for h in H_STARS}
        yield {
            "score": ratio[0.05] if says_answer else -1.0 - ratio[0.05],
            "answered": {str(h): ratio[h] >= 1.0 and says_answer for h in H_STARS},
        }


def _kl(p: float, q: float) -> float:
    p, q = (min(max(x, 1e-12), 1.0 - 1e-12) for x in (p, q))
    return p * math.log(p / q) + (1.0 - p) * math.log((1.0 - p) / (1.0 - q))


def gate(claims: Sequence[Claim]) -> Iterator[dict[str, Any]]:
    """p_ref, with q where p_ref is the same, and what the gate decides at each h*."""
    from isr_rag import ISRGate
    from isr_rag.errors import ConfigurationError

    gates: dict[float, ISRGate] = {}
    whole = ISRGate(h_star=0.2)
    for h in H_STARS:
        try:
            gates[h] = whole.with_h_star(h)
        except ConfigurationError as error:
            print(f"h* = {h}: {error}", file=sys.stderr)
    for number, one in enumerate(claims):
        if number == 0:  # loads the weights
            whole.decide(["Warm."], claim="Warm up.")
        begun = time.process_time()
        first = whole.decide(list(one.chunks), claim=one.claim)
        seconds = time.process_time() - begun
        q = first.q_bar if first.q_bar is not None else 0.0
        decided = {str(h): gate.decide(list(one.chunks), claim=one.claim).answered for h, gate in gates.items()}
        yield {"score": (first.p_ref or 0.0) + 1e-6 * q, "q": q, "answered": decided, "seconds": seconds}


Method = Callable[[Sequence[Claim]], Iterator[float] | Iterator[dict[str, Any]]]
METHODS: dict[str, Method] = {
    "word overlap": overlap,
    "BM25": bm25,
    "TF-IDF": tfidf,
    "LSA": lsa,
    "asked once": lambda claims: asked_once(claims, Base()),
    "sampled": lambda claims: sampled(claims, Base()),
    "hallbayes": lambda claims: hallbayes(claims, Base()),
    "this gate": gate,
}


def measure(method: str, claims: Sequence[Claim], kept: Path) -> None:
    """Append a line for every claim that has none yet."""
    done = set(_rows(kept))
    left = [one for one in claims if one.id not in done]
    if not left:
        return
    results, begun = METHODS[method](left if done else claims), 0.0
    with kept.open("a", encoding="utf-8") as lines:
        for number, one in enumerate(left):
            begun = time.process_time()
            result = next(results)
            spent = time.process_time() - begun
            row = result if isinstance(result, dict) else {"score": result}
            if number == 0 and "seconds" not in row:  # loading, or fitting, came first
                row["first"] = True
            print(json.dumps({"id": one.id, "seconds": spent, **row}), file=lines, flush=True)
            if number + 1 == len(left) or (number + 1) % 10 == 0:
                print(f"{method}: {number + 1} of {len(left)}", file=sys.stderr, flush=True)


def _rows(kept: Path) -> dict[str, dict[str, Any]]:
    lines = kept.read_text("utf-8").split("\n") if kept.exists() else []
    return {row["id"]: row for row in map(json.loads, filter(None, lines))}


def summary(claims: Sequence[Claim], rows: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """AUROC over all and over each part, coverage at 5% risk, the method's own decisions, seconds."""
    parts = ["all", *dict.fromkeys(one.part for one in claims)]
    told: dict[str, Any] = {"seconds": float(np.median([r["seconds"] for r in rows.values() if not r.get("first")]))}
    for part in parts:
        of_part = [one for one in claims if part in ("all", one.part)]
        labels = [one.label for one in of_part]
        distinct = sorted({rows[one.id]["score"] for one in of_part})
        rank = {score: (i + 1) / len(distinct) for i, score in enumerate(distinct)}
        scores = [rank[rows[one.id]["score"]] for one in of_part]
        auroc = metrics.bootstrap_interval(metrics.auroc, scores, labels, groups=[one.group for one in of_part])
        told[part] = {
            "items": len(of_part),
            "auroc": auroc.estimate,
            "auroc_interval": [auroc.lower, auroc.upper],
            "coverage_at_5": metrics.coverage_at_risk(scores, labels, 0.05),
            "decisions": {},
        }
        for h in map(str, H_STARS):
            answered = [one.label for one in of_part if rows[one.id].get("answered", {}).get(h)]
            if any(h in row.get("answered", {}) for row in rows.values()):
                told[part]["decisions"][h] = {"answered": len(answered), "wrong": answered.count(0)}
    return told


def table(told: dict[str, dict[str, Any]]) -> str:
    """The figures as a Markdown table."""
    parts = [part for part in next(iter(told.values())) if part != "seconds"]
    head = [
        "method",
        *(f"AUROC, {part}" for part in parts),
        "answered at 5% wrong",
        "own rule at h\\* .05",
        "at .1",
        "seconds",
    ]
    lines = [" | ".join(["", *head, ""]).strip(), "|---" * len(head) + "|"]
    for method, figures in told.items():
        cells = [method]
        for part in parts:
            low, high = figures[part]["auroc_interval"]
            cells.append(f"{figures[part]['auroc']:.2f} ({low:.2f} to {high:.2f})")
        cells.append(f"{figures['all']['coverage_at_5']:.0%}")
        for h in ("0.05", "0.1"):
            own = figures["all"]["decisions"].get(h)
            cells.append("" if own is None else f"{own['answered']}, {own['wrong']} wrong")
        cells.append(f"{figures['seconds']:.2g}" if figures["seconds"] >= 0.01 else "under 0.01")
        lines.append(" | ".join(["", *cells, ""]).strip())
    return "\n".join(lines)


def main() -> None:
    """Measure what is not kept yet, print the table, write the figures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--pairs", type=int, default=30, help="Pairs of near-misses, two claims each.")
    parser.add_argument("--items", type=Path, nargs="+", default=[], help="Labelled claims, a JSONL file per source.")
    parser.add_argument("--take", type=int, default=40, help="Claims of each of --items, half of them supported.")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    given = parser.parse_args()
    claims = draw(given.pairs, given.items, given.take, given.seed)
    kept = {
        method: given.json.with_suffix(f".{method.replace(' ', '-').replace(',', '')}.jsonl")
        for method in given.methods
    }
    if given.one is not None:
        measure(given.one, claims, kept[given.one])
        return
    for method in given.methods:
        subprocess.run([sys.executable, __file__, *sys.argv[1:], "--one", method], check=True)
    told = {method: summary(claims, _rows(kept[method])) for method in given.methods}
    print(table(told))
    settings = {name: getattr(given, name) for name in ("pairs", "take", "seed")}
    write_json(given.json, {"machine": machine(), "settings": settings, "methods": told})


if __name__ == "__main__":
    main()
