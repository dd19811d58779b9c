"""Texts of many kinds, the same at every run, to hold two tokenizers against each other."""

import random
from collections.abc import Sequence

PROSE = (
    "The committee met in the old town hall and read the harbour master's report; it didn't end.",
    "In 2024 some 1,240 ships passed (about 3.5 % more than before) -- no more than 980 in 1999.",
    "Die Straße über den Fluß wurde größer, sagte sie: »Übermorgen äußern wir uns.«",
    "L'été dernier, où qu'il fût, l'œuvre naïve du garçon plaisait déjà à sa mère.",
    "El niño comió piñas; ¿cuántas? ¡Muchísimas! Mañana volverá a la montaña.",
    "Съешь же ещё этих мягких французских булок, да выпей чаю.",
    "東京都は日本の首都であり、人口は約1400万人です。カタカナとひらがな。",
    "北京是中华人民共和国的首都，历史悠久，文化灿烂。",
    "안녕하세요. 오늘은 날씨가 좋네요.",
    "مرحبا بالعالم، كيف حالك اليوم؟",
    "שלום עולם, מה שלומך?",
    "नमस्ते दुनिया, आप कैसे हैं?",
    "สวัสดีชาวโลก วันนี้อากาศดี",
    "Xin chào thế giới, hôm nay trời đẹp quá.",
    "def f(x: int) -> dict[str, int]:\n    return {'a': x ** 2, \"b\": x // 3}  # 1_000\n",
    "for (int i = 0; i < n; ++i) {\n\tif (a[i] != NULL && *p >= 0x7F) return -1;\n}\r\n",
    '<a href="https://example.org/?q=1&p=%20">&lt;b&gt;</a> {"key": [1, 2.5e-3, null]}',
    "$\\int_0^1 \\frac{x^2}{2}\\,dx = \\tfrac16$ and a_i ≤ b_j ⇒ ∀ε>0 ∃δ",
)
_PIECES = (
    *(
        "🙂",
        "👩‍👩‍👧‍👦",
        "🇩🇪",
        "👍🏽",
        "e\u0301",
        "\u00e9",
        "ﬁ",
        "Ⅷ",
        "½",
        "①",
        "a\u0308o\u0308",
        "ﷺ",
        "\u1100\u1161",
    ),
    *(
        " ",
        "  ",
        "   ",
        "\t",
        "\n",
        "\n\n",
        "\n\n\n",
        "\r\n",
        "\u00a0",
        "\u3000",
        "\u2009",
        "\u200b",
        "\u2028",
    ),
    *(
        "\x00",
        "\x07",
        "\x1b[31m",
        "\x7f",
        "\u0085",
        "\ufeff",
        "\u202e",
        "\ufffd",
        "\U0010ffff",
        "\ue000",
    ),
    *(
        "▁",
        "▁▁",
        "Ġ",
        "<0x41>",
        "<0x0A>",
        "##",
        "'s",
        "'LL",
        " 've",
        " n't",
        " .",
        " ,",
        " !",
        " ' ",
    ),
    *(
        "0",
        "12",
        "123",
        "1234567890",
        "٣٤",
        "१२",
        "_",
        "--",
        "...",
        "!?",
        "(",
        ")",
        "[",
        "]",
        "<",
        ">",
    ),
)


def texts(count: int, special: Sequence[str], seed: int = 0) -> list[str]:
    """``count`` texts; many of them have ``special`` tokens somewhere, or pieces of these."""
    rng = random.Random(seed)
    made = ["", " ", *PROSE, *_PIECES, *special]
    made += [f"{before}{token}{after}" for token in special for before, after in _AROUND]
    while len(made) < count:
        made.append("".join(_piece(rng, special) for _ in range(rng.randint(1, 12))))
    return made[:count]


_AROUND = (("a", "b"), (" ", " "), ("a ", " b"), ("  ", "\n"), ("\n", "  b"), ("One.", ""))


def _piece(rng: random.Random, special: Sequence[str]) -> str:
    kind = rng.random()
    if kind < 0.35:
        sentence = rng.choice(PROSE)
        begin = rng.randrange(len(sentence))
        return sentence[begin : begin + rng.randint(1, 30)]
    if kind < 0.7:
        return rng.choice(_PIECES)
    if kind < 0.9 and special:
        token = rng.choice(special)
        return token if rng.random() < 0.8 else token[: rng.randrange(len(token) + 1)]
    return chr(
        rng.choice(
            (rng.randrange(32, 0x250), rng.randrange(0x250, 0xD800), rng.randrange(0xE000, 0x20000))
        )
    )
