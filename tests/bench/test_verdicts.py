from specx.bench.verdicts import fastest, ours_against_others
from tests.bench.benches import made_up

GROUPS = [
    (1024, [made_up("plain", 10), made_up("tree", 30), made_up("specextend", 20)]),
    (
        4096,
        [
            made_up("plain", 10),
            made_up("tree", 9),
            made_up("prompt-lookup", 44, acceptance_length=10.0),
            made_up("specextend", 30),
            made_up("specextend+lookup", 40, acceptance_length=8.0),
        ],
    ),
    (8192, [made_up("prompt-lookup", 20), made_up("specextend+lookup", 40)]),
]


def test_the_fastest_at_each_length():
    assert fastest(GROUPS, "plain") == (
        "the fastest method is tree at 1K (3 × plain) and prompt-lookup at 4K (4.4 × plain)."
    )


def test_ours_against_others_and_what_is_faster_where():
    alone, joined = ours_against_others(GROUPS)
    assert alone == (
        "at 4K, specextend decodes faster than all others that draft with a model; at 1K tree "
        "decodes 1.5 × as fast (acceptance length 1 against 1)."
    )
    assert joined == (
        "at 8K, specextend+lookup decodes faster than all others; at 4K prompt-lookup decodes "
        "1.1 × as fast (acceptance length 10 against 8)."
    )


def test_without_rivals_nothing_is_said():
    assert ours_against_others([(1024, [made_up("specextend", 1)])]) == []
