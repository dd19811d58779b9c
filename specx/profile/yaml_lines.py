"""YAML as plain values, with the line of every key."""

from dataclasses import dataclass, field

import yaml

from specx.profile.wording import dotted, shown

Place = tuple[str, ...]  # keys from the top of the file, such as ("tree", "nodes")


@dataclass(frozen=True, order=True)
class Problem:
    """A mistake in a profile. Lines and columns count from 1; column 0 is the whole line."""

    line: int
    sentence: str
    column: int = 0

    def __str__(self) -> str:
        column = f", column {self.column}" if self.column else ""
        return f"line {self.line}{column}: {self.sentence}"


@dataclass
class ParsedYaml:
    """A parsed file: plain values, the line of every key, and syntax errors.

    ``content`` is None when there are no values to check.
    """

    content: dict[str, object] | None = None
    lines: dict[Place, int] = field(default_factory=lambda: {(): 1})
    problems: list[Problem] = field(default_factory=list)


class _Loader(yaml.SafeLoader):
    """SafeLoader without aliases, so that a document is a finite tree."""

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            mark = self.peek_event().start_mark
            raise yaml.composer.ComposerError(None, None, "aliases are not allowed here", mark)
        node: yaml.Node | None = super().compose_node(parent, index)
        return node


def read_yaml(text: str) -> ParsedYaml:
    """Parse the text of a profile. Problems are collected, never raised."""
    document = ParsedYaml()
    try:
        loader = _Loader(text)
        node = loader.get_single_node()
        if isinstance(node, yaml.MappingNode):
            document.content = _mapping(loader, node, (), document)
        else:
            problem = Problem(1, "a profile has `key: value` lines, and there are none")
            document.problems.append(problem)
    except yaml.YAMLError as error:
        document.problems.append(_notation(error, text))
    except RecursionError:
        document.problems.append(Problem(1, "nested too deeply"))
    return document


def _notation(error: yaml.YAMLError, text: str) -> Problem:
    """Return the place and the reason of a syntax error."""
    if isinstance(error, yaml.reader.ReaderError):
        line = text.count("\n", 0, error.position) + 1
        return Problem(line, f"not valid YAML: character U+{ord(text[error.position]):04X}")
    if not isinstance(error, yaml.MarkedYAMLError):
        return Problem(1, "not valid YAML")
    mark = error.problem_mark or error.context_mark
    sentence = "not valid YAML: " + " ".join(filter(None, (error.context, error.problem)))
    return Problem(mark.line + 1, sentence, mark.column + 1) if mark else Problem(1, sentence)


def _mapping(
    loader: _Loader, node: yaml.MappingNode, place: Place, document: ParsedYaml
) -> dict[str, object]:
    """Return the plain values of a mapping; note lines, keys set twice, and odd keys."""
    content: dict[str, object] = {}
    for key_node, value_node in node.value:
        line = key_node.start_mark.line + 1
        if not isinstance(key_node, yaml.ScalarNode):
            document.problems.append(Problem(line, "a key must be a plain word"))
            continue
        key = str(key_node.value)  # as written: YAML would read `on` as true
        here = (*place, key)
        if key in content:
            sentence = f"`{dotted(here)}` is set twice, first in line {document.lines[here]}"
            document.problems.append(Problem(line, sentence))
            continue
        document.lines[here] = line
        content[key] = _value(loader, value_node, here, document)
    return content


def _value(loader: _Loader, node: yaml.Node, place: Place, document: ParsedYaml) -> object:
    if isinstance(node, yaml.MappingNode):
        return _mapping(loader, node, place, document)
    if isinstance(node, yaml.SequenceNode):
        return [_value(loader, item, place, document) for item in node.value]
    try:
        value: object = loader.construct_object(node)
    except (yaml.MarkedYAMLError, ValueError):  # a foreign tag, or a date such as 2024-99-99
        sentence = f"cannot read the value {shown(node.value)}"
        document.problems.append(Problem(node.start_mark.line + 1, sentence))
        return node.value
    return value
