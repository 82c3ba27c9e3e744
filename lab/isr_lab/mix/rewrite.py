"""Light, meaning-preserving rewriting of a sentence into a claim, by rules over its parse."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence

from isr_lab.mix.annotate import Annotated, Token
from isr_lab.mix.lexicon import SAME

_PARENTHESES = re.compile(r"\s*\([^()]*\)")
_BORN = re.compile(
    r"^(?P<name>[A-Z][^(),]{3,40}?) \((?:[^()]*?; )?born "
    r"(?P<date>(?:[A-Z][a-z]+ \d{1,2}, |\d{1,2} [A-Z][a-z]+ |[A-Z][a-z]+ )?\d{4})\)"
)
_PAST = {
    "written": "wrote",
    "drawn": "drew",
    "won": "won",
    "sung": "sang",
    "built": "built",
    "led": "led",
    "made": "made",
    "given": "gave",
    "taken": "took",
    "known": "",
    "born": "",
}
_LASTING = {"locate", "base", "situate", "aim", "know", "find", "own", "name", "headquarter", "use", "call", "compose"}


def _subtree(tokens: Sequence[Token], root: int) -> list[int]:
    inside = {root}
    grown = True
    while grown:
        grown = False
        for i, token in enumerate(tokens):
            if i not in inside and token.head in inside:
                inside.add(i)
                grown = True
    return sorted(inside)


def _text(tokens: Sequence[Token], keep: Sequence[int]) -> str:
    return "".join(tokens[i].text + tokens[i].space for i in keep).strip()


def _solid(indices: Sequence[int]) -> bool:
    return bool(indices) and indices[-1] - indices[0] + 1 == len(indices)


def root_of(tokens: Sequence[Token]) -> int | None:
    """The position of the main verb; None unless there is one."""
    roots = [i for i, token in enumerate(tokens) if token.dep == "ROOT"]
    return roots[0] if len(roots) == 1 else None


def _subject(tokens: Sequence[Token], verb: int) -> list[int]:
    for i, token in enumerate(tokens):
        if token.head == verb and token.dep in {"nsubj", "nsubjpass"} and token.pos in {"PROPN", "NOUN"}:
            span = _subtree(tokens, i)
            return span if _solid(span) and span[-1] < verb and len(span) <= 12 else []
    return []


def without_parentheses(text: str) -> str:
    """The text without bracketed asides."""
    previous = None
    while previous != text:
        previous, text = text, _PARENTHESES.sub("", text)
    return re.sub(r"\s+([,.;])", r"\1", " ".join(text.split()))


def birth(note: Annotated) -> str | None:
    """`NAME (born DATE) is ...` as a claim about the birth."""
    found = _BORN.match(note.text)
    if found is None:
        return None
    date = found["date"]
    preposition = "on" if len(date.split()) > 2 else "in"
    return f"{found['name'].strip()} was born {preposition} {date}."


def made_by(note: Annotated) -> str | None:
    """`X is a 1997 film directed by Y and ...` as `X was directed by Y.`"""
    tokens = note.tokens
    root = root_of(tokens)
    if root is None or tokens[root].lemma != "be":
        return None
    subject = _subject(tokens, root)
    for i, token in enumerate(tokens):
        if subject and token.dep == "acl" and token.tag == "VBN" and tokens[token.head].dep == "attr":
            span = [k for k in _subtree(tokens, i) if not _in_conjunct(tokens, k, i)]
            if _solid(span) and 3 <= len(span) <= 14 and span[0] == i:
                plural, lasting = tokens[root].text in {"are", "were"}, token.lemma in _LASTING
                verb = tokens[root].text if lasting else "were" if plural else "was"
                return f"{_text(tokens, subject)} {verb} {_text(tokens, span).rstrip(' ,.;')}."
    return None


def _in_conjunct(tokens: Sequence[Token], i: int, top: int) -> bool:
    while i != top:
        if tokens[i].head == top and (tokens[i].dep in {"conj", "cc"} or tokens[i].text == ","):
            return True
        if tokens[i].head == i:
            return False
        i = tokens[i].head
    return False


def active(note: Annotated) -> str | None:
    """`X was directed by Y` as `Y directed X.`, for a simple passive with its agent."""
    tokens = note.tokens
    root = root_of(tokens)
    if root is None or tokens[root].tag != "VBN" or tokens[root].lemma in {"bear", "know", "base", "surround"}:
        return None
    auxiliaries = [t for t in tokens if t.head == root and t.dep in {"aux", "auxpass", "neg"}]
    if [t.text for t in auxiliaries] not in (["was"], ["were"]):
        return None
    agents = [i for i, t in enumerate(tokens) if t.head == root and t.dep == "agent" and t.text == "by"]
    subject = _subject(tokens, root)
    verb = tokens[root].text
    past = _PAST.get(verb, verb if verb.endswith("ed") else "")
    if len(agents) != 1 or not subject or not past:
        return None
    agent = _subtree(tokens, agents[0])
    if not _solid(agent) or len(agent) < 2 or len(agent) > 10:
        return None
    others = [i for i in range(len(tokens)) if i not in {*subject, *agent, root} and tokens[i].head == root]
    if any(tokens[i].dep in {"conj", "cc", "advcl", "relcl", "nsubjpass", "mark", "advmod"} for i in others):
        return None
    tail = [k for i in others if tokens[i].dep == "prep" and i > root for k in _subtree(tokens, i)]
    doer = _text(tokens, agent[1:])
    ending = f" {_text(tokens, sorted(tail))}" if tail else ""
    return f"{doer[0].upper()}{doer[1:]} {past} {_decapitalised(tokens, subject)}{ending.rstrip(' ,.')}."


def _decapitalised(tokens: Sequence[Token], span: Sequence[int]) -> str:
    text = _text(tokens, span).rstrip(" ,")
    first = tokens[span[0]]
    return text[0].lower() + text[1:] if first.pos in {"DET", "PRON", "ADP"} and span[0] == 0 else text


def first_clause(note: Annotated) -> str | None:
    """The first of two coordinated predicates: `X did A and did B` as `X did A.`"""
    tokens = note.tokens
    root = root_of(tokens)
    if root is None:
        return None
    conjuncts = [i for i, t in enumerate(tokens) if t.head == root and t.dep == "conj" and t.pos in {"VERB", "AUX"}]
    coordinators = [i for i, t in enumerate(tokens) if t.head == root and t.dep == "cc" and t.text == "and"]
    if len(conjuncts) != 1 or len(coordinators) != 1 or not _subject(tokens, root):
        return None
    cut = set(_subtree(tokens, conjuncts[0])) | {coordinators[0]}
    if max(cut) < len(tokens) - 2:
        return None
    text = _text(tokens, [i for i in range(min(cut))]).rstrip(" ,.;")
    return f"{text}." if len(text.split()) >= 5 else None


def second_clause(note: Annotated) -> str | None:
    """The second of two coordinated predicates, with the subject put before it."""
    tokens = note.tokens
    root = root_of(tokens)
    if root is None:
        return None
    subject = _subject(tokens, root)
    conjuncts = [i for i, t in enumerate(tokens) if t.head == root and t.dep == "conj" and t.tag in {"VBD", "VBZ"}]
    if not any(t.head == root and t.dep == "cc" and t.text in {"and", "but"} for t in tokens):
        return None
    if len(conjuncts) != 1 or not subject:
        return None
    span = _subtree(tokens, conjuncts[0])
    if not _solid(span) or any(
        tokens[i].dep in {"nsubj", "nsubjpass"} and tokens[i].head == conjuncts[0] for i in span
    ):
        return None
    text = _text(tokens, span).rstrip(" ,.;")
    return f"{_text(tokens, subject).rstrip(' ,')} {text}." if len(text.split()) >= 4 else None


def without_asides(note: Annotated) -> str | None:
    """The sentence without appositions and relative clauses that stand between commas."""
    tokens = note.tokens
    drop: set[int] = set()
    for i, token in enumerate(tokens):
        if token.dep in {"appos", "relcl", "advcl"} and token.pos != "PROPN":
            span = _subtree(tokens, i)
            before, after = span[0] - 1, span[-1] + 1
            if (
                _solid(span)
                and before > 0
                and after < len(tokens)
                and tokens[before].text == ","
                and tokens[after].text in {",", "."}
            ):
                drop |= {before, *span} | ({after} if tokens[after].text == "," else set())
    if not drop:
        return None
    text = "".join(token.text + token.space if i not in drop else " " for i, token in enumerate(tokens))
    text = re.sub(r"\s+([,.;])", r"\1", " ".join(text.split()))
    return text if len(text.split()) >= 5 and _balanced(text) else None


def time_last(note: Annotated) -> str | None:
    """A prepositional phrase with which the sentence opens, moved to its end."""
    tokens = note.tokens
    root = root_of(tokens)
    if root is None or tokens[0].dep != "prep" or tokens[0].head != root:
        return None
    span = _subtree(tokens, 0)
    if not _solid(span) or len(span) > 6 or len(tokens) <= len(span) + 4 or tokens[len(span)].text != ",":
        return None
    rest = _text(tokens, range(len(span) + 1, len(tokens))).rstrip(" .")
    if "," in rest or len(rest.split()) > 18:
        return None
    opening = _text(tokens, span)
    return f"{rest[0].upper()}{rest[1:]} {opening[0].lower()}{opening[1:]}."


def _balanced(text: str) -> bool:
    return text.count('"') % 2 == 0 and text.count("(") == text.count(")")


RULES: tuple[tuple[str, Callable[[Annotated], str | None]], ...] = (
    ("birth", birth),
    ("made by", made_by),
    ("active", active),
    ("second clause", second_clause),
    ("first clause", first_clause),
    ("time last", time_last),
    ("asides dropped", without_asides),
)


def has_subject(note: Annotated) -> bool:
    """Whether the main clause has a subject with a name or number in it, so the claim can stand alone."""
    tokens = note.tokens
    for i, token in enumerate(tokens):
        if token.dep in {"nsubj", "nsubjpass", "csubj"} and tokens[token.head].dep == "ROOT":
            return any(tokens[k].pos in {"PROPN", "NUM"} or tokens[k].text == '"' for k in _subtree(tokens, i))
    return False


def rewritings(note: Annotated) -> list[tuple[str, str]]:
    """Every rewriting a rule gives, as (name of the rule, claim)."""
    if note.text.count(",") > 5:
        return []
    found = [(name, rule(note)) for name, rule in RULES]
    return [(name, claim) for name, claim in found if claim and _balanced(claim) and len(claim.split()) >= 4]


def reworded(text: str, rng: random.Random) -> str:
    """The text with at most two wordings replaced by ones of the same meaning."""
    fitting = [(pattern, other) for pattern, other in SAME if re.search(pattern, text)]
    for pattern, other in rng.sample(fitting, min(len(fitting), 2)):
        if rng.random() < 0.6:
            text = re.sub(pattern, other, text, count=1)
    return text
