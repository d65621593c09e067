"""Text to tokens and back: bytes, letter pairs, common words, and the model's special tokens.

A word is one token with and without the space before it; another word falls apart into pairs of
small letters and bytes; everything else is UTF-8 bytes. Special tokens come only from the chat
template and from the model itself: text of a request never becomes one, whatever it spells.
"""

from __future__ import annotations

import codecs
import functools
import itertools
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from string import ascii_lowercase

BOS = "<｜begin▁of▁sentence｜>"
EOS = "<｜end▁of▁sentence｜>"
USER = "<｜User｜>"
ASSISTANT = "<｜Assistant｜>"
TOOL = "<｜Tool｜>"
PLAN = "<｜plan｜>"
CALLS_OPEN = "<｜DSML｜tool_calls>"
CALLS_CLOSE = "</｜DSML｜tool_calls>"
INVOKE_OPEN = '<｜DSML｜invoke name="'
INVOKE_CLOSE = "</｜DSML｜invoke>"
PARAMETER_OPEN = '<｜DSML｜parameter name="'
PARAMETER_CLOSE = "</｜DSML｜parameter>"
IS_STRING = '" string="true">'
IS_JSON = '" string="false">'

CONTROL = (BOS, EOS, USER, ASSISTANT, TOOL, PLAN)
MARKUP = (
    CALLS_OPEN,
    CALLS_CLOSE,
    INVOKE_OPEN,
    INVOKE_CLOSE,
    PARAMETER_OPEN,
    PARAMETER_CLOSE,
    IS_STRING,
    IS_JSON,
)
_BYTES = 256
_WORD = re.compile(r" ?[A-Za-z]+")
_MARKUP = re.compile("|".join(re.escape(mark) for mark in MARKUP))


@dataclass(frozen=True)
class Piece:
    """A token and the characters it stands for.

    Attributes:
        token: its id.
        start: its first character; a byte in the middle of a character starts with that character.
        end: behind its last character.
    """

    token: int
    start: int
    end: int


class Tokenizer:
    """The vocabulary of the glass box.

    Attributes:
        longest: bytes of the longest token, and so the most characters that a token stands for.
    """

    def __init__(self, words: Iterable[str]) -> None:
        pairs = ("".join(pair) for pair in itertools.product(ascii_lowercase, repeat=2))
        spaced = (form for word in words for form in (word, f" {word}"))
        texts = dict.fromkeys((*CONTROL, *MARKUP, *pairs, *spaced))
        self._texts: list[bytes] = [bytes([value]) for value in range(_BYTES)]
        self._texts += [text.encode() for text in texts]
        self._ids = {text: _BYTES + place for place, text in enumerate(texts)}
        for letter in (*ascii_lowercase, " "):
            self._ids[letter] = ord(letter)
        self.control = {name: self._ids[name] for name in CONTROL}
        self._hidden = frozenset(self.control.values())
        self.longest = max(map(len, self._texts))
        self._spell = functools.lru_cache(maxsize=1 << 16)(self._spell_word)

    @property
    def size(self) -> int:
        """How many tokens there are."""
        return len(self._texts)

    @property
    def eos(self) -> int:
        """The token that ends a reply."""
        return self.control[EOS]

    def encode(self, text: str, *, markup: bool = False) -> list[int]:
        """Return the tokens of a text; marks in it are spelled out unless `markup` is asked for."""
        return [piece.token for piece in self.pieces(text, markup=markup)]

    def pieces(self, text: str, *, markup: bool = False) -> list[Piece]:
        """Return the tokens of a text with their places; `markup` makes special tokens of marks."""
        if not markup:
            return list(self._plain(text, 0, len(text)))
        found: list[Piece] = []
        start = 0
        for match in _MARKUP.finditer(text):
            found += self._plain(text, start, match.start())
            found.append(Piece(self._ids[match.group()], match.start(), match.end()))
            start = match.end()
        found += self._plain(text, start, len(text))
        return found

    def bytes_of(self, token: int) -> bytes:
        """Return what a token writes; control tokens write nothing."""
        return b"" if token in self._hidden else self._texts[token]

    def decode(self, tokens: Iterable[int]) -> str:
        """Return the text of tokens; bytes that are no UTF-8 become U+FFFD."""
        return b"".join(self.bytes_of(token) for token in tokens).decode(errors="replace")

    def _plain(self, text: str, start: int, end: int) -> Iterator[Piece]:
        place = start
        while place < end:
            match = _WORD.match(text, place, end)
            if match is None:
                for value in text[place].encode(errors="surrogatepass"):
                    yield Piece(value, place, place + 1)
                place += 1
                continue
            for token, length in self._spell(match.group()):
                yield Piece(token, place, place + length)
                place += length

    def _spell_word(self, word: str) -> tuple[tuple[int, int], ...]:
        whole = self._ids.get(word)
        if whole is not None:
            return ((whole, len(word)),)
        if word[0] == " ":
            return ((ord(" "), 1), *self._spell_word(word[1:]))
        spelled = []
        place = 0
        while place < len(word):
            pair = self._ids.get(word[place : place + 2])
            length = 1 if pair is None else len(word[place : place + 2])
            spelled.append((ord(word[place]) if pair is None else pair, length))
            place += length
        return tuple(spelled)


class TextStream:
    """Turns tokens into text as they come; an unfinished character waits for its bytes."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def push(self, token: int) -> str:
        """Return the text that the token completes."""
        return self._decoder.decode(self._tokenizer.bytes_of(token))

    def finish(self) -> str:
        """Return what is left."""
        return self._decoder.decode(b"", final=True)


def standard_tokenizer() -> Tokenizer:
    """Return the tokenizer with the words of `vocabulary.txt`."""
    words = (Path(__file__).parent / "vocabulary.txt").read_text(encoding="utf-8").split()
    return Tokenizer(words)
