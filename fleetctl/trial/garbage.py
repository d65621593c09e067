"""Signs that a text is no language: loops, broken characters, a script out of nowhere.

Each sign is a flag of its own. Thresholds come from outcomes.toml.
"""

from __future__ import annotations

import functools
import re
import unicodedata
import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from fleetctl.trial.soup import is_symbol_soup
from fleetctl.trial.stutter import is_stutter

_WORDS = re.compile(r"[A-Za-z0-9_]+|\S")
_LOOK_AT_CHARS = 200_000  # a loop shows within this; the rest of a runaway text costs time only


@dataclass(frozen=True)
class GarbageLimits:
    """From when on a sign counts.

    Attributes:
        ngram_words: length of the repeated piece, in words.
        ngram_repeats: times it must occur without overlap.
        zlib_ratio: compressed size over size below which a text is a loop.
        zlib_over_chars: texts up to this length are not judged by compression.
        script_letters: letters of a script that the prompt doesn't use.
        script_share: and their share of all letters.
        mixed_scripts: number of scripts in one text that make a salad.
        soup_share: of symbols among a text's characters that make it a soup,
        soup_unpaired: with so many brackets and quotes that do not pair,
        soup_chars: in a text of at least this length.
        stutter_words: times in a row that a word must be said,
        stutter_signs: or another sign than those of lines and tables,
        stutter_share: and the share of the text that such runs must make up.
    """

    ngram_words: int = 20
    ngram_repeats: int = 5
    zlib_ratio: float = 0.15
    zlib_over_chars: int = 400
    script_letters: int = 8
    script_share: float = 0.2
    mixed_scripts: int = 4
    soup_share: float = 0.15
    soup_unpaired: int = 2
    soup_chars: int = 24
    stutter_words: int = 5
    stutter_signs: int = 12
    stutter_share: float = 0.25


def garbage_flags(
    text: str, *, prompt: str, limits: GarbageLimits, is_cut: bool = False
) -> frozenset[str]:
    """Return the signs in a text, each as a flag.

    Args:
        text: all of a reply's content.
        prompt: what the request contained; characters and scripts seen there are no sign.
        limits: thresholds.
        is_cut: the reply ran out of tokens.
    """
    if not text:
        return frozenset()
    beginning = text[:_LOOK_AT_CHARS]
    return frozenset(
        (
            *_repetition_flags(beginning, limits),
            *_soup_flags(beginning, limits, is_cut=is_cut or len(text) > _LOOK_AT_CHARS),
            *_character_flags(text, prompt, limits),
        )
    )


def _soup_flags(text: str, limits: GarbageLimits, *, is_cut: bool) -> Iterator[str]:
    if is_symbol_soup(
        text,
        share=limits.soup_share,
        unpaired=limits.soup_unpaired,
        chars=limits.soup_chars,
        is_cut=is_cut,
    ):
        yield "symbol_soup"


def _repetition_flags(text: str, limits: GarbageLimits) -> Iterator[str]:
    if _most_repeats(text, limits.ngram_words) >= limits.ngram_repeats:
        yield "ngram_loop"
    if is_stutter(
        text,
        words=limits.stutter_words,
        signs=limits.stutter_signs,
        share=limits.stutter_share,
    ):
        yield "stutter"
    raw = text.encode("utf-8", "surrogatepass")
    is_long = len(text) > limits.zlib_over_chars
    if is_long and len(zlib.compress(raw)) < limits.zlib_ratio * len(raw):
        yield "compressible"


def _most_repeats(text: str, ngram_words: int) -> int:
    """Return how often the most frequent n-gram of words occurs without overlapping itself."""
    words = _WORDS.findall(text)
    counts: Counter[tuple[str, ...]] = Counter()
    free_from: dict[tuple[str, ...], int] = {}
    for start in range(len(words) - ngram_words + 1):
        gram = tuple(words[start : start + ngram_words])
        if free_from.get(gram, 0) <= start:
            counts[gram] += 1
            free_from[gram] = start + ngram_words
    return max(counts.values(), default=0)


def _character_flags(text: str, prompt: str, limits: GarbageLimits) -> Iterator[str]:
    if text.isascii() and text.isprintable():
        return
    strange = set(text) - set(prompt)
    if any(char == "\ufffd" or "\ud800" <= char <= "\udfff" for char in strange):
        yield "replacement_chars"
    if any(_is_control(char) for char in strange):
        yield "control_bytes"
    if text.isascii():
        return
    scripts = Counter(script for char in text if (script := script_of(char)))
    known = {script for char in set(prompt) if (script := script_of(char))}
    new_letters = sum(count for script, count in scripts.items() if script not in known)
    is_many = new_letters >= limits.script_letters
    if known and is_many and new_letters >= limits.script_share * scripts.total():
        yield "script_switch"
    if len(scripts.keys() - known) >= limits.mixed_scripts:
        yield "script_salad"


def _is_control(char: str) -> bool:
    return char not in "\t\n\r" and unicodedata.category(char) in {"Cc", "Co", "Cn"}


@functools.lru_cache(maxsize=4096)
def script_of(char: str) -> str:
    """Return the script of a letter, such as `LATIN` or `CJK`, and "" for anything else.

    The first word of a letter's Unicode name is its script for all scripts in daily use.
    """
    if not char.isalpha():
        return ""
    return unicodedata.name(char, "").partition(" ")[0].partition("-")[0]
