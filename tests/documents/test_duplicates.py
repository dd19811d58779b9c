import random

import pytest

from specx.documents.duplicates import first_places

MANUAL = (
    "This program is distributed in the hope that it will be useful, but without any warranty.",
    "If a package cannot be installed, report the fault to its maintainer.",
)


@pytest.mark.parametrize(
    "alike",
    [
        (MANUAL[0], MANUAL[0]),
        (MANUAL[0], MANUAL[0].upper()),
        (
            "Dear Ms. Anna Lindqvist, we are pleased to inform you that your application "
            "no. 48213 for the housing grant has been approved.",
            "Dear Mr. Tomas Berger, we are pleased to inform you that your application "
            "no. 99120 for the housing grant has been approved.",
        ),
        (
            "We are writing to inform you, Mr. Joe Smith, that your account number AB12345 will be "
            "closed on 12 March 2024 unless you contact us.",
            "We are writing to inform you, Mrs. Ann Berg, that your account number CD98765 will be "
            "closed on May 3, 2024 unless you contact us.",
        ),
        ("Notes follow.", "Notes follow."),
        (
            "委员会在旧市政厅开会并阅读了港务局长的报告。",
            "委员会在旧市政厅开会并阅读了港务局长的报告！",
        ),
    ],
    ids=["same", "capitals", "application", "account", "short", "Chinese"],
)
def test_boilerplate_is_known_again(alike: tuple[str, str]) -> None:
    one, other = alike
    assert first_places([one, MANUAL[1], other]) == [0, 1]


@pytest.mark.parametrize(
    "facts",
    [
        ("In 2019 revenue was 5 million.", "In 2020 revenue was 7 million."),
        (
            "In 2019 the agency inspected its stations in the district and found 130 of them "
            "out of order.",
            "In 2020 the agency inspected its stations in the district and found 172 of them "
            "out of order.",
        ),
        (
            "The state of Ohio reported 120 cases in March 2020.",
            "The state of Iowa reported 95 cases in March 2020.",
        ),
        ("The server listens on port 8080.", "The server listens on port 8443."),
        ("Carrow is a village in the district of Selwick.", "Fenwick is a town near Tarrow."),
        ("Table 1.", "Table 2."),
    ],
    ids=["revenue", "inspections", "cases", "port", "places", "labels"],
)
def test_facts_that_are_told_alike_stay_apart(facts: tuple[str, str]) -> None:
    assert first_places(facts) == [0, 1]


def test_twenty_letters_are_one() -> None:
    names = ["Anna Lindqvist", "Tomas Berger", "Ruth Okafor", "Henrik Maas", "Celia Durand"]
    letters = [
        f"Dear {names[n % 5]}, your request of {n + 1} March 2024 (no. {48000 + n}) reached our "
        "office, and we shall answer it within the time that the law allows."
        for n in range(20)
    ]
    assert first_places(letters) == [0]


@pytest.mark.timeout(20)
def test_twenty_thousand_sentences_take_seconds() -> None:
    rng = random.Random(1)
    words = [f"word{chr(97 + n % 26)}{chr(97 + n // 26)}" for n in range(3000)]
    sentences = [" ".join(rng.sample(words, 20)) for _ in range(4000)] + [MANUAL[0]] * 16_000
    assert len(first_places(sentences)) == 4001
