from specx.documents.characters import clean_line, is_undecoded


def test_ligatures_are_expanded() -> None:
    assert clean_line("eﬃcient oﬀer, ﬁne ﬂow, waﬄe, faﬅ, miﬆ") == (
        "efficient offer, fine flow, waffle, fast, mist"
    )


def test_other_compatibility_characters_stay() -> None:
    assert clean_line("10 km², x³, №, ½, ™, Å") == "10 km², x³, №, ½, ™, Å"


def test_spaces_and_invisible_characters() -> None:
    assert clean_line(" a\u00a0b\u2009c\u200bd  e\x07\x00 ") == "a b cd e"


def test_soft_hyphens_stay_only_at_the_end() -> None:
    assert clean_line("moni\u00adtor\u00ad ") == "monitor\u00ad"


def test_halves_of_surrogate_pairs_are_dropped() -> None:
    assert clean_line("a\ud835b") == "ab"


def test_undecoded() -> None:
    assert is_undecoded("\ufffd\ufffd\ue001 a")
    assert not is_undecoded("A line with one \ufffd sign")
    assert not is_undecoded("")
