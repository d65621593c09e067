"""Symbol soup: words and punctuation of the prompt, shaken. No language and no code.

What tells it from code, JSON and tables, which have as much punctuation, is that its brackets and
quotes do not pair.
"""

from __future__ import annotations

import re

_CODE = re.compile(r"```.*?(?:```|\Z)|`[^`\n]+`", re.DOTALL)
_PAIRS = {")": "(", "]": "[", "}": "{"}
# f"…" and b'…' are code; any other quote between two letters opens and closes nothing
_GLUED_QUOTE = re.compile(r'(?<=\w)(?<!\b[rbfuRBFU])(?<!\b[rbRB][rbfRBF])"(?=\w)')


def is_symbol_soup(text: str, *, share: float, unpaired: int, chars: int, is_cut: bool) -> bool:
    """Whether a text is punctuation without order.

    Args:
        text: all of a reply's content; code between back-quotes is left out.
        share: of symbols among the characters that are no white space, from which it may be.
        unpaired: brackets and quotes without a partner, from which it is.
        chars: shorter texts (white space not counted) are not judged.
        is_cut: the reply ran out of tokens, so that what it opened may be open.
    """
    prose = without_code(text)
    dense = [char for char in prose if not char.isspace()]
    symbols = sum(char.isascii() and not char.isalnum() for char in dense)
    if len(dense) < chars or symbols < share * len(dense):
        return False
    return _unpaired(prose, is_cut=is_cut) >= unpaired


def without_code(text: str) -> str:
    """Return a text without what stands between back-quotes."""
    return _CODE.sub(" ", text)


def _unpaired(text: str, *, is_cut: bool) -> int:
    """Return how many brackets and double quotes have no partner."""
    waiting: list[str] = []
    without = len(_GLUED_QUOTE.findall(text))
    for char in text:
        if char in "([{":
            waiting.append(char)
        elif char in _PAIRS and waiting[-1:] == [_PAIRS[char]]:
            waiting.pop()
        elif char in _PAIRS:
            without += 1
    return without if is_cut else without + len(waiting) + text.count('"') % 2
