"""Options of earlier releases that ``--set`` has replaced; they work for one release more."""

from collections.abc import Sequence

_SAMPLING = ("top_p", "top_k", "min_p", "repetition_penalty", "presence_penalty")
_REPLACED = {
    f"--{key.replace('_', '-')}": f"generation.{key}"
    for key in (*_SAMPLING, "frequency_penalty", "no_repeat_ngram")
} | {"--on-loop": "prompt.on_loop"}
_FLAGS = {"--no-fallback": "fallback.below=null", "--no-sources": "sources=false"}


def with_set(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Replace old options by ``--set``; return the new arguments, and a notice for each.

    The old spellings work for one release.
    """
    new: list[str] = []
    notices: list[str] = []
    rest = iter(arguments)
    for argument in rest:
        name, equals, value = argument.partition("=")
        if argument == "--":
            return [*new, argument, *rest], notices
        if name in _FLAGS:
            setting = _FLAGS[name]
        elif name in _REPLACED:
            setting = f"{_REPLACED[name]}={value if equals else next(rest, '')}"
        else:
            new.append(argument)
            continue
        new += ["--set", setting]
        notices.append(f"{name} is deprecated; use --set {setting}")
    return new, notices
