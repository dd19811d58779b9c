"""Read the special tokens of a model's folder, from up to four files and its class."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer

Special = str | AddedToken
NAMES = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
UNNAMED, _UNNAMED_BEFORE = "extra_special_tokens", "additional_special_tokens"
_ADDED = "added_tokens_decoder"


@dataclass(frozen=True, kw_only=True)
class SpecialTokens:
    """The special tokens of a folder.

    ``named``: by name, those of ``NAMES`` first. ``unnamed``: the others. ``added``: by id, all
    tokens to be added to the tokenizer, special or not.
    """

    named: dict[str, Special]
    unnamed: list[Special]
    added: dict[int, AddedToken]

    def all(self) -> list[Special]:
        return [*self.named.values(), *self.unnamed]

    def add_to(self, tokenizer: Tokenizer) -> None:
        """Add missing tokens to the tokenizer."""
        present = tokenizer.get_added_tokens_decoder().values()
        same = {repr(token) for token in present}
        adding: list[Special] = [t for _, t in sorted(self.added.items()) if repr(t) not in same]
        known = {token.content for token in present} | {str(token) for token in adding}
        adding += [token for token in self.all() if str(token) not in known]
        named = {str(token) for token in self.named.values()}
        tokenizer.add_tokens([_marked(token, str(token) in named) for token in adding])


def read_special_tokens(
    folder: Path,
    settings: Mapping[str, Any],
    stored: Mapping[int, AddedToken],
    defaults: Mapping[str, Any],
) -> SpecialTokens:
    """Read the special tokens of a folder as transformers does.

    ``settings``: its ``tokenizer_config.json``; ``stored``: the added tokens of its
    ``tokenizer.json``; ``defaults``: default names of the tokenizer's class. Other files are used
    only if the settings list no added tokens. Raises TypeError for an invalid token.
    """
    given: dict[str, Any] = _with_tokens(settings)
    if _UNNAMED_BEFORE in given and not given.get(UNNAMED):
        given[UNNAMED] = given.pop(_UNNAMED_BEFORE)
    own = _own_names(given)
    if _ADDED in given:
        added = {int(i): _token(token) for i, token in given[_ADDED].items()}
    else:
        given |= _older(read_object(folder / "special_tokens_map.json"), given)
        own = _own_names(given) | own
        added = _older_added(read_object(folder / "added_tokens.json"), given) | dict(stored)
    by_text = {token.content: token for token in added.values()}
    named = {key: by_text.get(str(given[key]), given[key]) for key in NAMES if key in given}
    named = {key: named[key] if key in named else defaults.get(key) for key in NAMES} | own
    unnamed = given[UNNAMED] if UNNAMED in given else given.get(_UNNAMED_BEFORE)
    return SpecialTokens(
        named={key: _checked(token) for key, token in named.items() if token is not None},
        unnamed=[_checked(each) for each in unnamed or defaults.get(UNNAMED, ())],
        added=added,
    )


def _own_names(given: dict[str, Any]) -> dict[str, Special]:
    """Move special tokens with unusual names out of ``given``, and return them."""
    unnamed = given.get(UNNAMED)
    own = dict(given.pop(UNNAMED)) if isinstance(unnamed, dict) else {}
    names = [key for key in given if key.endswith("_token") and key not in NAMES]
    return {key: given.pop(key) for key in names if isinstance(given[key], Special)} | own


def _older(file: dict[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the contents of ``special_tokens_map.json``."""
    tokens = {
        key: _special(value) if isinstance(value, dict) and key != UNNAMED else value
        for key, value in file.items()
    }
    more: Any = tokens.get(UNNAMED)
    if isinstance(more, list):
        before = list(given.get(UNNAMED) or [])
        more = [_special(each) if isinstance(each, dict) else each for each in more]
        tokens[UNNAMED] = before + [token for token in more if token not in before]
    return tokens


def _older_added(file: dict[str, Any], given: Mapping[str, Any]) -> dict[int, AddedToken]:
    """Return the contents of ``added_tokens.json``: tokens with ids, without flags."""
    special = {str(given[key]) for key in NAMES if given.get(key)}
    special |= {str(token) for token in given.get(UNNAMED) or []}
    return {
        i: AddedToken(text, normalized=text not in special, special=text in special)
        for text, i in file.items()
    }


def _with_tokens(value: Any) -> Any:
    """Return JSON with its serialized tokens turned into token objects."""
    if isinstance(value, list):
        return [_with_tokens(each) for each in value]
    if not isinstance(value, dict):
        return value
    if value.get("__type") == "AddedToken":
        return AddedToken(**{key: each for key, each in value.items() if key != "__type"})
    return {key: _with_tokens(each) for key, each in value.items()}


def _token(value: Any) -> AddedToken:
    return value if isinstance(value, AddedToken) else AddedToken(**value)


def _special(value: dict[str, Any]) -> AddedToken:
    return AddedToken(**{**value, "special": True})


def _marked(token: Special, is_named: bool) -> AddedToken:
    if isinstance(token, str):
        return AddedToken(token, special=True)
    token.special = token.special or is_named
    return token


def _checked(token: Any) -> Special:
    if not isinstance(token, Special):
        raise TypeError(f"the special token {token!r} is not text")
    return token


def read_object(file: Path) -> dict[str, Any]:
    """Read a JSON object; return an empty one if the file is missing."""
    contents = json.loads(file.read_bytes()) if file.is_file() else {}
    if not isinstance(contents, dict):
        raise TypeError(f"{file.name} is not a JSON object")
    return contents
