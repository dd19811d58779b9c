"""From a model's folder to its tokenizer, as transformers builds it from the same files.

Ids and text equal those of ``AutoTokenizer``, as a test checks. Formats that only transformers
reads (a ``tokenizer.model``, classes of other families) are left to it.
"""

from collections.abc import Mapping
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers.models import BPE
from tokenizers.processors import TemplateProcessing

from specx.errors import ModelError, reason
from specx.models.known_templates import template_for
from specx.models.special_tokens import UNNAMED, SpecialTokens, read_object, read_special_tokens
from specx.models.tokenizer import NO_LIMIT, Tokenizer
from specx.models.tokenizer_class import (
    PARTS,
    T5,
    T5_NAMED,
    WHOLE,
    from_vocabulary,
    rebuilt,
    t5,
    t5_gaps,
    tokenizer_class,
)

FILE, TEKKEN_FILE = "tokenizer.json", "tekken.json"


def load_tokenizer(folder: Path, label: str) -> Any:
    """Return the tokenizer of a folder: a ``Tokenizer``, or transformers' if only that can read it.

    ``label`` begins the message of a ModelError, raised for a missing or unreadable tokenizer.
    """
    has = {path.name for path in folder.glob("tokenizer*")}
    if "tokenizer.model" in has and not has & {FILE, "tokenizer_config.json"}:
        raise ModelError(  # transformers would guess, and drop the first token and space
            f"{label} has a tokenizer.model but no tokenizer_config.json, which says how to "
            "use it; download both."
        )
    try:
        if (folder / TEKKEN_FILE).is_file() and FILE not in has:
            return _tekken(folder)
        tokenizer = read_tokenizer(folder)
        return _by_transformers(folder) if tokenizer is None else tokenizer
    except Exception as error:  # parsers of several formats, each with errors of its own
        raise ModelError(
            f"{label} has no tokenizer that can be read ({reason(error)}); download the "
            "model with its tokenizer files."
        ) from error


def _by_transformers(folder: Path) -> Any:
    from transformers import AutoTokenizer  # takes a second to import

    from specx.models.seam_config import quiet_transformers

    with quiet_transformers():
        return AutoTokenizer.from_pretrained(folder, trust_remote_code=False, local_files_only=True)


def _tekken(folder: Path) -> Tokenizer:
    """Return Mistral's tokenizer from its own file, with the template that Mistral has in code."""
    from transformers import PreTrainedTokenizerFast as Backend  # takes a second to import

    from specx.models.seam_config import quiet_transformers

    with quiet_transformers():
        backend = Backend.from_pretrained(folder, local_files_only=True).backend_tokenizer
    backend.post_processor = TemplateProcessing(
        single=["<s>", "$A"], special_tokens=[("<s>", backend.token_to_id("<s>"))]
    )
    named = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    return Tokenizer(
        backend=backend, named=named, chat_template=template_for(backend.get_vocab()),
    )  # fmt: skip


def read_tokenizer(folder: Path) -> Tokenizer | None:
    """Return the tokenizer of a folder; None: left to transformers.

    Raises the parsing errors of its files.
    """
    settings = read_object(folder / "tokenizer_config.json")
    name = _class(folder, settings)
    if name is None:
        return None
    stored = _stored(folder / FILE)
    special = _special_tokens(folder, settings, stored, name)
    backend = _backend(folder, {**settings, **special.named}, stored, name)
    if backend is None:
        return None
    special.add_to(backend)
    again = PARTS[name].again if name in PARTS else None
    if again is not None:
        backend.add_special_tokens([again(token) for token in special.all()])
    backend.no_padding()
    if stored is None:
        backend.post_processor = _around(backend, settings, special)
    return _finished(backend, settings, special, folder)


def _class(folder: Path, settings: Mapping[str, Any]) -> str | None:
    """Return the class that reads a folder, if this module supports it."""
    tekken = (folder / TEKKEN_FILE).is_file() and find_spec("mistral_common")
    odd = ("fast_tokenizer_files", "fix_mistral_regex", "init_inputs", "auto_map")
    if tekken or any(settings.get(key) for key in odd):
        return None
    config = read_object(folder / "config.json")
    name = tokenizer_class(config, settings, partial(_is_byte_level, folder / FILE))
    return name if name in (WHOLE, T5, *PARTS) else None


def _is_byte_level(file: Path) -> bool:
    return file.is_file() and b'"ByteLevel"' in file.read_bytes()


def _stored(file: Path) -> tokenizers.Tokenizer | None:
    """Return the tokenizer of ``tokenizer.json``, without truncation and padding."""
    if not file.is_file():
        return None
    stored = tokenizers.Tokenizer.from_file(str(file))
    stored.no_truncation()
    return stored


def _special_tokens(
    folder: Path, settings: Mapping[str, Any], stored: tokenizers.Tokenizer | None, name: str
) -> SpecialTokens:
    padding = stored.padding if stored is not None else None
    defaults: dict[str, Any] = {"pad_token": padding["pad_token"]} if padding else {}
    if name == T5:
        defaults |= {**T5_NAMED, UNNAMED: t5_gaps(settings)}
    elif name in PARTS:
        defaults |= PARTS[name].named
    added = stored.get_added_tokens_decoder() if stored is not None else {}
    return read_special_tokens(folder, settings, added, defaults)


def _backend(
    folder: Path, settings: Mapping[str, Any], stored: tokenizers.Tokenizer | None, name: str
) -> tokenizers.Tokenizer | None:
    """Return the tokenizer before any tokens are added; None if it is unsupported."""
    if name == WHOLE or stored is None:
        is_from_vocabulary = name in PARTS and stored is None
        return from_vocabulary(PARTS[name], folder, settings) if is_from_vocabulary else stored
    return t5(folder / FILE, settings) if name == T5 else rebuilt(PARTS[name], stored, settings)


def _around(
    backend: tokenizers.Tokenizer, settings: Mapping[str, Any], special: SpecialTokens
) -> TemplateProcessing:
    """Return the processor that adds special tokens, for folders without a ``tokenizer.json``."""
    begin, end = (
        str(special.named[key]) if settings.get(f"add_{key}") and key in special.named else None
        for key in ("bos_token", "eos_token")
    )
    single = [each for each in (begin, "$A", end) if each is not None]
    ids = [(each, backend.token_to_id(each)) for each in single if each != "$A"]
    return TemplateProcessing(single=single, special_tokens=ids)


def _finished(
    backend: tokenizers.Tokenizer, settings: Mapping[str, Any], special: SpecialTokens, folder: Path
) -> Tokenizer:
    limit = settings.get("model_max_length", settings.get("max_len"))
    return Tokenizer(
        backend=backend,
        named={name: str(token) for name, token in special.named.items()},
        chat_template=read_template(folder, settings),
        model_max_length=NO_LIMIT if limit is None else limit,
        split_special_tokens=bool(settings.get("split_special_tokens", False)),
        cleans_up=_cleans_up(backend, settings),
    )


def _cleans_up(backend: tokenizers.Tokenizer, settings: Mapping[str, Any]) -> bool:
    forced = "clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output"
    harms = isinstance(backend.model, BPE) and not settings.get(forced)
    return bool(settings.get("clean_up_tokenization_spaces")) and not harms


def read_template(folder: Path, settings: Mapping[str, Any]) -> str | dict[str, str] | None:
    """Return the template of a folder, or several by name.

    Template files take precedence over ``settings``, those of ``tokenizer_config.json``.
    """
    templates: dict[str, str] = {}
    main = folder / "chat_template.jinja"
    if main.is_file():
        templates["default"] = main.read_text("utf-8")
    for file in (folder / "additional_chat_templates").glob("*.jinja"):
        templates[file.stem] = file.read_text("utf-8")
    if templates:
        return templates["default"] if [*templates] == ["default"] else templates
    stated: Any = settings.get("chat_template")
    if isinstance(stated, list):
        return {each["name"]: each["template"] for each in stated}
    return stated
