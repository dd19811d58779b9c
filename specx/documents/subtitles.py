"""Read subtitles (SRT, WebVTT, SBV) as the speech that they are, with times as places."""

import html
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from specx.documents.document import Document, Paragraph
from specx.documents.text import clean_line
from specx.errors import DocumentError

SUBTITLE_ENDINGS = frozenset({".srt", ".vtt", ".sbv"})
_CLOCK = r"(?:(\d+):)?(\d{1,2}):(\d{2})[.,]\d{1,3}"
_TIMES = re.compile(rf"\s*{_CLOCK}(?:\s*-->\s*|,){_CLOCK}.*")
_BEGINS = re.compile(rf"\s*(?:WEBVTT\b.*|(?:\d+\s*\n)?{_TIMES.pattern}\n)")
_ASIDE = re.compile(r"(?:NOTE|STYLE|REGION)\b")
_VOICE = re.compile(r"<v(?:\.[^\s>]*)?\s+([^>]*)>")
_NAME = re.compile(r"(?:>>\s*|- ?)?([^\W\d_][\w.'’ -]{0,40}?):\s+(?=\S)")
_CHANGE = re.compile(r">>\s*|^-\s+|^-(?=[^\W\d])")  # somebody else speaks
_TAG = re.compile(r"<[^>]*>|\{\\[^}]*\}")
_SENTENCE_END = re.compile(r"[.!?…][\"'”’)\]]*(?=\s|$)|[。！？]")
_ROLLS = 0.3  # this share of captions repeats the one before
_LONG, _LONGEST = 200, 500  # characters of a paragraph: then a sentence ends it, then any line


class _Cue(NamedTuple):
    """The lines that are shown at a time."""

    time: str
    speaker: str
    voiced: bool  # the file names its speakers by tags
    lines: tuple[str, ...]


def looks_like_subtitles(text: str) -> bool:
    return _BEGINS.match(text) is not None


def document_from_subtitles(text: str, name: str, warnings: tuple[str, ...] = ()) -> Document:
    """Return speech in paragraphs of a few sentences, each with its time as its label.

    What captions show again when they roll is read once. Raises DocumentError if nothing is said.
    """
    cues = list(_cues(text.split("\n")))
    cues = list(_once(cues)) if _rolls(cues) else cues
    turns = list(_turns(cues))
    if not turns:
        raise DocumentError(f"{name} holds subtitles in which nobody speaks")
    spoken = " ".join(line for _, _, line in turns)
    unpunctuated = len(_SENTENCE_END.findall(spoken)) * _LONGEST < len(spoken)
    if unpunctuated:
        warnings += ("The speech has no full stops; it is read in pieces of some lines.",)
    return Document(
        name=name,
        kind="subtitles",
        pages=(),
        paragraphs=tuple(_paragraphs(turns, _LONG if unpunctuated else _LONGEST)),
        warnings=warnings,
        everything=unpunctuated,
    )


def _cues(lines: Sequence[str]) -> Iterator[_Cue]:
    voiced = any(map(_VOICE.search, lines))
    timed = [index for index, line in enumerate(lines) if _TIMES.fullmatch(line)]
    for start, end in pairwise([*timed, len(lines) + 1]):
        shown = lines[start + 1 : end]
        if end <= len(lines) and shown and shown[-1].strip() and (len(shown) == 1 or not shown[-2]):
            shown = shown[:-1]  # the number, or the name, of the next caption
        aside = [i for i, line in enumerate(shown) if i and not shown[i - 1] and _ASIDE.match(line)]
        shown = shown[: aside[0]] if aside else shown
        found = _TIMES.fullmatch(lines[start])
        hours, minutes, seconds = found.groups()[:3] if found else ("0", "0", "0")
        voice = _VOICE.search(" ".join(shown))
        texts = [clean_line(html.unescape(_TAG.sub("", line))) for line in shown]
        time = f"{int(hours or 0)}:{int(minutes):02}:{seconds}"
        yield _Cue(time, voice[1].strip() if voice else "", voiced, tuple(filter(None, texts)))


def _rolls(cues: Sequence[_Cue]) -> bool:
    shown = [cue for cue in cues if cue.lines]
    again = sum(below.lines[0].startswith(above.lines[-1]) for above, below in pairwise(shown))
    return again > _ROLLS * len(shown)


def _once(cues: Sequence[_Cue]) -> Iterator[_Cue]:
    """Yield captions without the lines, and the beginnings of lines, of the ones before."""
    before: tuple[str, ...] = ()
    for cue in cues:
        lines = [line for line in cue.lines if line not in before]
        if lines and before and lines[0].startswith(before[-1]):
            lines[0] = lines[0][len(before[-1]) :].strip()
        yield cue._replace(lines=tuple(lines))
        before = cue.lines or before


def _turns(cues: Sequence[_Cue]) -> Iterator[tuple[str, str, str]]:
    """Yield time, speaker and text of each line; a name with a colon in front is a speaker."""
    names = Counter(named[1] for cue in cues for line in cue.lines if (named := _NAME.match(line)))
    speaker = ""
    for cue in cues:
        for line in cue.lines:
            named = None if cue.speaker else _NAME.match(line)
            if named and names[named[1]] > 1:
                speaker, line = named[1], line[named.end() :]
            elif cue.speaker or cue.voiced or _CHANGE.match(line):
                speaker = cue.speaker
            yield cue.time, speaker, _CHANGE.sub("", line)


def _paragraphs(turns: Sequence[tuple[str, str, str]], longest: int) -> Iterator[Paragraph]:
    text, start, speaker = "", "", ""
    for time, who, line in turns:
        if text and who != speaker:
            yield _paragraph(text, start, speaker)
            text = ""
        text, start, speaker = f"{text} {line}".strip(), start if text else time, who
        ends = [found.end() for found in _SENTENCE_END.finditer(text)]
        if len(text) >= longest or (len(text) >= _LONG and ends):
            end = ends[-1] if ends else len(text)
            yield _paragraph(text[:end], start, speaker)
            text, start = text[end:].strip(), time
    if text:
        yield _paragraph(text, start, speaker)


def _paragraph(text: str, time: str, speaker: str) -> Paragraph:
    return Paragraph(f"{speaker}: {text}" if speaker else text, None, label=time)
