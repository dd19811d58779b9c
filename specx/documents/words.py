"""Count the words of a text, of one in a script without spaces, too."""

import re

# Chinese and Japanese: each character is a word, as word processors count.
CHARACTER = re.compile(
    "[\u3041-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff66-\uff9f"
    "\U00020000-\U0003ffff]"
)
# Thai, Lao, Burmese and Khmer: so many letters and signs, on average.
_UNSPACED = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff]+")
_LETTERS_OF_A_WORD = 5


def count_words(text: str) -> int:
    """Return the number of words: what stands between spaces and has a letter or a digit."""
    text, characters = CHARACTER.subn(" ", text)
    unspaced = sum(-(-len(run) // _LETTERS_OF_A_WORD) for run in _UNSPACED.findall(text))
    spaced = _UNSPACED.sub(" ", text).split()
    return characters + unspaced + sum(any(map(str.isalnum, word)) for word in spaced)
