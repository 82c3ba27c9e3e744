"""Which language a text is in: only where that can be told, and never by the order of several texts."""

from __future__ import annotations

import itertools

import pytest

from isr_rag._util.text import foreign_language, languages_of, sample

ENGLISH = "The river flows through the old town and on to the sea, where it was dammed long ago."
GERMAN = "Der Fluss fließt durch die alte Stadt und weiter zum Meer, wo er vor langer Zeit gestaut wurde."


def test_words_that_could_be_of_any_language_say_nothing_of_it() -> None:
    unclear = ["a b", "SKU 4421-B: 12 pcs", "12 34", "def f(x): return x+1", "ID-1234 OK"]
    assert languages_of(unclear) == ()
    assert languages_of([*unclear * 50, ENGLISH]) == ("en",)
    assert languages_of([ENGLISH] * 9 + [GERMAN]) == ("de", "en")


def test_a_sample_takes_the_same_of_each_text_in_any_order() -> None:
    texts = [GERMAN * 40, ENGLISH * 40, "third"]
    samples = {sample(list(order)) for order in itertools.permutations(texts)}
    assert len(samples) == 1
    found = samples.pop()
    assert len(found) <= 2000 and GERMAN in found and ENGLISH in found
    assert foreign_language(sample([GERMAN * 40] * 3), ("en",)) == "de"
    assert sample([]) == ""


@pytest.mark.parametrize(
    "text",
    [
        "Björk Guðmundsdóttir was born in Reykjavík.",
        "Kraków, Łódź and Wrocław are cities.",
        "Who wrote Cien años de soledad? Gabriel García Márquez",
        "When was the Gesetz über den Lastenausgleich passed? 1952",
        "CEO of Müller & Söhne GmbH? Jürgen Müller",
    ],
)
def test_names_make_no_other_language_of_an_english_text(text: str) -> None:
    assert foreign_language(text, ("en",)) is None


@pytest.mark.parametrize("text", ["Wie hoch ist der Preis?", "¿Dónde está Madrid?", "Warszawa jest stolicą Polski."])
def test_a_short_text_in_another_language_is_told_in_spite_of_its_names(text: str) -> None:
    assert foreign_language(text, ("en",)) is not None
