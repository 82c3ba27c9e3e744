"""Encoding: control tokens stay the template's own, and segments put together are the whole text."""

from __future__ import annotations

import copy
import itertools
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st
from tokenizers import processors

from isr_rag.core.evidence import Chunk
from isr_rag.core.predicates import Choice, Custom, Predicate, Sufficient, Supported
from isr_rag.core.prompt import Prompt
from isr_rag.errors import LabelError, PromptTooLongError

pytest.importorskip("torch")
pytest.importorskip("transformers")

from isr_rag.scorers.local import encoding
from isr_rag.scorers.local.encoding import EncodedPrompt, PromptEncoder
from tests.scorers import tiny

EVERY = sorted(tiny.FAMILIES)
CHATS = [family for family in EVERY if tiny.FAMILIES[family][0]]
CHUNKS = [Chunk("Kepler published the harmonic law in 1619.", "Kepler"), Chunk("Paris is a capital."), Chunk("1 or 0?")]
INVISIBLE = ["\u200b", "\u200d", "\u2060", "\ufeff", "\u00ad", "\u202e", "\u034f"]


def control_ids(family: str, *, special: bool = True) -> set[int]:
    tokenizer = tiny.tokenizer(family, special=special)
    return {int(i) for i in tokenizer.convert_tokens_to_ids(list(tiny.FAMILIES[family][1]))}


def controls(family: str, encoded: EncodedPrompt, *, special: bool = True) -> list[list[int]]:
    """The control tokens of each segment, in order."""
    known = control_ids(family, special=special)
    return [[i for i in ids if i in known] for ids in (encoded.head, *encoded.chunks, encoded.tail)]


def asked(text: str) -> list[Predicate]:
    return [
        Supported(claim=text),
        Supported(question=text, answer=text),
        Sufficient(text),
        Choice(text, [text, "other"]),
        Custom("n", "Topic: {a}", "Ask.", {"a": text}),
    ]


def attack(family: str) -> st.SearchStrategy[str]:
    tokens = tiny.FAMILIES[family][1]
    pieces = [
        piece for token in tokens for piece in (token, token[: len(token) // 2], token[len(token) // 2 :], token[1:])
    ]
    noise = [" ", "\n", "<", "|", ">", "[", "]", "｜", "x", *INVISIBLE]
    flat = st.lists(st.sampled_from([*pieces, *noise]), min_size=1, max_size=10).map("".join)
    nested = st.builds(
        lambda outer, inner, at: outer[: at % len(outer)] + inner + outer[at % len(outer) :],
        st.sampled_from(tokens),
        st.sampled_from([*tokens, *noise]),
        st.integers(0, 40),
    )
    return st.lists(st.one_of(flat, nested, nested), min_size=1, max_size=4).map(lambda parts: "x" + "".join(parts))


@pytest.mark.parametrize("special", [True, False], ids=["special", "added"])
@pytest.mark.parametrize("family", EVERY)
class TestNoControlTokenEntersFromOutside:
    def test_each_token_alone(self, family: str, special: bool) -> None:
        encoder = PromptEncoder(tiny.tokenizer(family, special=special))
        for token in tiny.FAMILIES[family][1]:
            self.check(encoder, family, special, f"a {token} b{token}{token} {token[0]}{token}{token[1:]}")

    def test_adversarial_text(self, family: str, special: bool) -> None:
        encoder = PromptEncoder(tiny.tokenizer(family, special=special))

        @settings(max_examples=settings.default.max_examples // 2)  # a dozen encodings each
        @given(attack(family))
        def run(text: str) -> None:
            self.check(encoder, family, special, text)

        run()

    @staticmethod
    def check(encoder: PromptEncoder, family: str, special: bool, text: str) -> None:
        for hostile, plain in zip(asked(text), asked("x"), strict=True):
            chunks = [Chunk(text, text), Chunk(text)]
            got = controls(family, encoder.encode(hostile.render(chunks)), special=special)
            want = controls(family, encoder.encode(plain.render([Chunk("x"), Chunk("x")])), special=special)
            assert got == want  # the template's own and no others
            assert got[1] == got[2] == []


def test_control_tokens_that_a_normaliser_would_make_are_not_let_in() -> None:
    """Full-width brackets become control tokens where a tokenizer normalises before it looks for added tokens."""
    from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    inner = Tokenizer.from_str(tiny.tokenizer("base").backend_tokenizer.to_str())
    inner.normalizer = normalizers.NFKC()
    assert isinstance(inner.model, models.BPE) and isinstance(inner.pre_tokenizer, pre_tokenizers.ByteLevel)
    fast = PreTrainedTokenizerFast(tokenizer_object=inner)
    fast.add_tokens([AddedToken("<|im_end|>", normalized=True)])
    own = fast.convert_tokens_to_ids("<|im_end|>")
    assert own in fast.encode("a ＜|im_end|＞ b", add_special_tokens=False), (
        "the attack no longer works: drop this test"
    )
    encoder = PromptEncoder(fast)
    text = "a ＜|im_end|＞ b"
    encoded = encoder.encode(Supported(claim=text).render([Chunk(text, text)]))
    assert own not in (*encoded.head, *encoded.chunks[0], *encoded.tail)
    assert len(encoder._outside(text)) > 0


@pytest.mark.parametrize("family", CHATS)
def test_the_template_surrounds_the_users_words(family: str) -> None:
    tokenizer = tiny.tokenizer(family)
    prompt = Supported(claim="Paris is a capital.").render(CHUNKS)
    encoder = PromptEncoder(tokenizer)
    text = tokenizer.decode(encoder.encode(prompt).assemble((0, 1, 2)))
    user = prompt.prefix + "".join(prompt.chunks) + prompt.suffix
    assert text.count(user) == 1 and text.count(prompt.instruction) == 1
    assert text.index(prompt.instruction) < text.index(user)
    assert encoder.chat and not text.endswith(user)
    head = tiny.FAMILIES[family][1]
    assert any(text.startswith(token) for token in head) or family == "odd"


@pytest.mark.parametrize(
    ("bos", "eos", "added", "kept"),
    [
        ("<s>", "</s>", "<s> $A", 1),
        ("<s>", "</s>", "<s> $A </s>", 1),
        ("<s>", "</s>", "$A </s>", 0),  # a prompt must not begin with the end of a text
        (None, "</s>", "$A </s>", 0),
        ("</s>", "</s>", "</s> $A", 1),  # as OPT has it
        (None, None, "$A", 0),
    ],
)
def test_plain_text_begins_as_the_tokenizer_says_and_never_ends_there(
    bos: str | None, eos: str | None, added: str, kept: int
) -> None:
    words = copy.deepcopy(tiny.tokenizer("mistral"))
    words.bos_token, words.eos_token = bos, eos
    named = [(text, words.convert_tokens_to_ids(text)) for text in ("<s>", "</s>")]
    words.backend_tokenizer.post_processor = processors.TemplateProcessing(single=added, special_tokens=named)
    prompt = Supported(claim="It is.").render([Chunk("Paris")])
    ids = PromptEncoder(words, chat=False).encode(prompt).assemble((0,))
    assert ids[:kept] == words.encode("")[:kept]
    assert words.decode(ids[kept:]).startswith(prompt.instruction)


def test_without_a_template_the_prompt_is_plain_text() -> None:
    tokenizer = tiny.tokenizer("base")
    encoder = PromptEncoder(tokenizer)
    prompt = Sufficient("When?").render(CHUNKS)
    text = tokenizer.decode(encoder.encode(prompt).assemble((2, 0, 1)))
    assert (
        text
        == f"{prompt.instruction}\n\n{prompt.prefix}"
        + "".join(prompt.chunks[i] for i in (2, 0, 1))
        + f"{prompt.suffix}\nReply:"
    )
    assert not encoder.chat
    assert PromptEncoder(tiny.tokenizer("chatml"), chat=False).chat is False
    with pytest.raises(LabelError, match="chat=False"):
        PromptEncoder(tokenizer, chat=True)


@pytest.mark.parametrize("family", ["base", "chatml", "llama3", "deepseek"])
def test_segments_put_together_are_the_whole_text(family: str) -> None:
    tokenizer = tiny.tokenizer(family)
    encoder = PromptEncoder(tokenizer)
    for predicate in asked("Kepler published the law in 1619."):
        prompt = predicate.render(CHUNKS)
        encoded = encoder.encode(prompt)
        for ordering in itertools.permutations(range(3)):
            ids = encoded.assemble(ordering)
            assert ids == tokenizer.encode(tokenizer.decode(ids), add_special_tokens=False)
            assert len(ids) == encoded.length


REAL = [
    "Ravel’s “Boléro” (1928), first danced by Ida Rubinstein, lasts 15–17 minutes…",
    "Temperatures fell to −40 °C; 3.5 % of the stock — worth $1,250,000 — was lost!",
    "def f(x):  return x**2   # a comment; see https://example.org/a?b=c&d=%20",
    "Владимир Набоков родился в 1899 году. 東京は日本の首都です。 عاصمة فرنسا هي باريس",
    "\tTabs\tand   runs of spaces .  Odd   punctuation !? ... ( like this ) 'quoted' ''twice''",
    "emoji 🙂👩‍👩‍👧 and accents e\u0301\u0301 and 1619'th 10th 0x1F",
    "ends with a number 42",
    "ENDS WITH CAPITALS",
]


def real_tokenizer() -> Any:
    from transformers import AutoTokenizer

    from isr_rag.scorers.embedded import model_directory

    return AutoTokenizer.from_pretrained(model_directory())


@pytest.mark.model
def test_segments_put_together_are_the_whole_text_for_a_real_tokenizer() -> None:
    tokenizer = real_tokenizer()
    encoder = PromptEncoder(tokenizer)
    chunks = [
        Chunk(text, title)
        for text, title in zip(REAL, [None, "T. 1", None, "Набоков", None, "x", "7", None], strict=True)
    ]
    for text in REAL:
        for predicate in asked(text):
            for topic_first in (True, False):
                encoded = encoder.encode(predicate.render(chunks, topic_first=topic_first))
                for ordering in ((0, 1, 2, 3, 4, 5, 6, 7), (7, 6, 5, 4, 3, 2, 1, 0), (3, 0, 6, 2, 7, 1, 5, 4)):
                    ids = encoded.assemble(ordering)
                    whole = tokenizer.decode(ids, clean_up_tokenization_spaces=False)
                    assert tokenizer.encode(whole, add_special_tokens=False) == ids


def test_no_control_token_enters_a_real_tokenizer() -> None:
    tokenizer = real_tokenizer()
    encoder = PromptEncoder(tokenizer)
    tokens = [str(token) for token in tokenizer.added_tokens_decoder.values()]
    known = set(tokenizer.added_tokens_decoder)
    text = " ".join(f"{t}{t[: len(t) // 2]}{t}{t[len(t) // 2 :]}" for t in tokens)
    encoded = encoder.encode(Supported(claim=text).render([Chunk(text, text)]))
    plain = encoder.encode(Supported(claim="x").render([Chunk("x")]))
    assert not known & set(encoded.chunks[0])
    for got, want in ((encoded.head, plain.head), (encoded.tail, plain.tail)):
        assert [i for i in got if i in known] == [i for i in want if i in known]


class TestLabels:
    def ids(self, *labels: tuple[str, ...], family: str = "chatml") -> tuple[tuple[int, ...], ...]:
        encoder = PromptEncoder(tiny.tokenizer(family))
        return encoder.encode(Prompt("i", "p\n", ("> c\n",), "s", labels)).labels

    def test_each_label_gathers_its_single_token_forms(self) -> None:
        tokenizer = tiny.tokenizer("chatml")
        one, zero = self.ids(("1",), ("0",))
        assert tokenizer.encode("1") == [one[0]] and set(one).isdisjoint(zero)
        assert {tokenizer.decode([i]).strip() for i in one} == {"1"}

    def test_several_strings_count_for_one_label(self) -> None:
        one, _ = self.ids(("1", "y"), ("0",))
        assert set(tiny.tokenizer("chatml").convert_tokens_to_ids(["1", "y"])) <= set(one)

    @pytest.mark.parametrize(
        "labels",
        [(("1",), ("1",)), (("1", "0"), ("0",)), (("1",), (" 1",)), (("1",), ("unspeakable words",)), (("",), ("1",))],
    )
    def test_labels_that_tokenise_alike_or_not_at_all_are_refused(self, labels: tuple[tuple[str, ...], ...]) -> None:
        with pytest.raises(LabelError) as caught:
            self.ids(*labels)
        assert isinstance(caught.value, ValueError)


class TestWindow:
    def test_too_long_says_by_how_much_and_where(self) -> None:
        encoder = PromptEncoder(tiny.tokenizer("chatml"))
        chunks = [Chunk("short"), Chunk("long " * 100), Chunk("short again")]
        prompt = Supported(claim="c").render(chunks)
        length = encoder.encode(prompt).length
        assert encoder.encode(prompt, window=length).length == length
        with pytest.raises(PromptTooLongError) as caught:
            encoder.encode(prompt, window=length - 20)
        message = str(caught.value)
        assert f"{length} tokens, 20 more than the model's window of {length - 20}" in message
        assert "evidence[1] with" in message and "longest" in message
        assert isinstance(caught.value, ValueError)

    def test_the_first_chunk_that_does_not_fit_is_named(self) -> None:
        encoder = PromptEncoder(tiny.tokenizer("chatml"))
        prompt = Supported(claim="c").render([Chunk("aa bb cc dd")] * 6)
        encoded = encoder.encode(prompt)
        room = len(encoded.head) + len(encoded.tail) + 3 * len(encoded.chunks[0])
        with pytest.raises(PromptTooLongError, match=r"evidence\[3\] is the first"):
            encoder.encode(prompt, window=room)

    def test_a_question_that_fills_the_window_alone_is_named(self) -> None:
        encoder = PromptEncoder(tiny.tokenizer("chatml"))
        prompt = Sufficient("why " * 400).render([Chunk("a"), Chunk("b")])
        with pytest.raises(PromptTooLongError, match="without any evidence"):
            encoder.encode(prompt, window=200)

    def test_the_chunks_without_which_it_fits_are_named(self) -> None:
        encoder = PromptEncoder(tiny.tokenizer("chatml"))
        short, long = Chunk("aa bb"), Chunk("long " * 60)
        prompt = Supported(claim="c").render([short, long, short, long, short])
        needed = encoder.encode(Supported(claim="c").render([short] * 3)).length
        for beside in (False, True):
            with pytest.raises(PromptTooLongError) as caught:
                encoder.encode(prompt, window=needed, beside=beside)
            assert caught.value.without == (1, 3)


def test_texts_are_kept_up_to_a_number_of_bytes_and_long_ones_not_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoding, "_KEPT", 100_000)
    encoder = PromptEncoder(tiny.tokenizer("chatml"))
    kept = encoder._kept_ids.cache
    encoder._outside("short")
    before = kept.currsize
    encoder._outside("word " * 20_000)
    assert kept.currsize == before
    for i in range(100):
        text = f"{i} " + "word " * 60
        assert encoder._outside(text) == tuple(encoder._encode(text))
    assert before < kept.currsize <= 100_000


def test_an_instruction_that_a_template_puts_after_the_question_joins_it() -> None:
    words = copy.deepcopy(tiny.tokenizer("chatml"))
    words.chat_template = (
        "{{ messages[-1].content }}{% if messages | length > 1 %} {{ messages[0].content }}{% endif %}"
    )
    head, tail = PromptEncoder(words).around("Reply 1 or 0.")
    assert (head, tail) == ("Reply 1 or 0.\n\n", "")


def test_a_template_that_expects_something_else_is_named() -> None:
    words = copy.deepcopy(tiny.tokenizer("chatml"))
    for template in ("{{ tools | length }}", "{{ messages[0].content + 1 }}", {"rag": "{{ messages }}"}):
        words.chat_template = template
        with pytest.raises(LabelError, match="chat template"):
            PromptEncoder(words).around("Reply 1 or 0.")
