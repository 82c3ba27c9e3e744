"""Which questions stand alone, and what becomes of those that do not."""

from __future__ import annotations

import pytest

from isr_rag import ISRGate, Reason
from isr_rag.gate.adapters import not_alone, stands_alone
from isr_rag.references import Oracle
from isr_rag.testing import FixedScorer

REFERRING = """
And when did it end?
and when did it end
When did it end?
Who was he?
What about Paris?
How about in 1990?
Who built it?
Who owns it?
How do I install it?
Where is its source?
Why?
When?
How long?
Which year?
What is their capital?
Is that true?
When was this tower built?
What happened then?
Who lives there?
How many of them survived?
What did she write?
Which one is longer?
But why?
How much does it cost?
How long did it take?
When was that?
Was it him?
Did they win?
And the Seine?
And what is the capital of France?
Does it support Python?
How tall is it?
What was her name?
Who designed this?
Where did they move to after?
Why is it called the Big Apple?
Why did it fail?
Where was he born?
How old was she when she died?
Tell me more about it.
Who won that battle?
What lives there?
tell me more about that
"""

ALONE = """
When did the war end, and who won it?
Which river flows through Paris?
Is it true that the Seine flows through Paris?
How long does it take to get from Rome to Milan?
What time is it in Tokyo?
Is there a river in Paris?
Are there any exceptions to the rule?
What does it mean to be human?
What is the river that flows through Paris?
Who wrote the book that won the prize in 1998?
When was the Eiffel Tower built and who designed it?
Did Einstein finish his thesis?
How do I install Python and configure it?
Do cats eat fish when they are hungry?
What is river 03 called?
Which country won the World Cup of 1998?
longest river in France
What does the pass statement do?
How are default parameter values evaluated?
Is the Seine or the Loire the longest river in France?
How long did it take to build the Eiffel Tower?
Is it possible to use a lambda in a class?
What does the del statement do with a slicing?
Where does the Loire end?
How can one get from Rome to Milan?
What's the name of the person who wrote Emma?
Which one of the rivers of France is the longest?
Why do birds sing when it rains?
Who was the first president of France?
Where did the Beatles play their first concert?
Quand est-ce que la guerre a fini ?
Welche Flüsse fließen durch Paris?
What are the conditions under which a tenant may end their lease?
Can an employee carry over his holidays?
What is covered by this policy?
Does this manual explain how to reset the device?
How do I reset the device if it does not start?
How many days of leave do employees have, and when do they expire?
Which river flows through Rouen?
What happens if there is no evidence?
How much is there in the account?
Which rivers are there?
Has there ever been a rookie who won the title?
Who argued that consent had been given orally?
does scotland have its own football team
when did marathon change its name
What is Python?
Why is there a semicolon?
How do I contact IT?
What is IT support's number?
"""


@pytest.mark.parametrize("question", REFERRING.strip().split("\n"))
def test_a_question_that_refers_to_what_was_said_before_does_not_stand_alone(question: str) -> None:
    assert not stands_alone(question)


@pytest.mark.parametrize("question", ALONE.strip().split("\n"))
def test_a_question_that_names_what_it_is_about_stands_alone(question: str) -> None:
    assert stands_alone(question)


def test_a_question_that_does_not_stand_alone_is_an_abstention_that_says_so_and_nothing_is_scored() -> None:
    scorer = FixedScorer([0.97])
    gate = ISRGate(scorer=scorer, reference=Oracle(1.0))
    for answer in (None, "In 1918."):
        decision = not_alone(gate, "And when did it end?", answer)
        assert decision is not None and decision.reason is Reason.INSUFFICIENT_INFORMATION and not decision.answered
        assert decision.question == "And when did it end?" and "stands alone" in decision.explain()
    assert not_alone(gate, "When did the war end?") is None and not scorer.requests
