"""Filler context: plain words in a seeded order, so that any length has the same bytes everywhere.

The list is part of what makes requests reproducible: changing it changes every request.
"""

from __future__ import annotations

import random

WORDS = tuple(
    """
    acorn amber anchor apple apron arch arrow aspen atlas autumn badge baker bamboo barley barn
    basin basket beacon bell bench birch blanket blossom blue boat border bottle branch brass bread
    breeze brick bridge bronze brook brush bucket butter button cabin canal candle canvas canyon
    carbon cargo carpet castle cedar cellar chalk channel chapel cherry chimney cinder circle clay
    cliff clock cloud clover coast cobalt coffee colour comet copper coral corner cotton courtyard
    cradle crane creek crystal curtain daisy dawn desert dew diamond door drift drum dune dust
    eagle earth east ebony echo elm ember engine estuary evening fabric falcon feather fence fern
    field flame flint flour flute fog forest forge fountain frame frost garden garnet gate ginger
    glacier glass globe gold grain granite grass gravel green grove gull hammer harbour harvest
    hazel heath hedge hill hollow honey horizon hour house indigo inlet iron island ivory ivy jade
    jasmine jetty juniper kettle keystone kiln lagoon lake lamp lantern lark laurel lavender leaf
    ledge lemon library lily lime linen lock loom lumber lunar maple marble market marsh meadow
    melon mill mineral mint mirror mist moon morning moss mountain museum needle nest nickel night
    north nutmeg oak oasis oat ocean olive onyx orange orbit orchard otter oxen paddle palm paper
    parcel path pearl pebble pepper pier pillar pine planet plaza plum pond poplar port prairie
    quarry quartz quay quill quilt rain raven reed reef ribbon ridge river road robin rock roof
    rope rose rudder saddle saffron sail salt sand sapphire seed shade shell shore silk silver
    slate snow south spark spice spring spruce square stable star steam steel stone storm straw
    stream summer sunset table tallow tea temple thistle thread thyme tide timber tin topaz tower
    trail train tulip tunnel valley vault velvet village vine violet wagon walnut water wave west
    wheat wheel willow wind window winter wood wool yarn yellow zephyr zinc
    """.split()  # noqa: SIM905 - a list literal would be 370 lines
)

_SENTENCE_WORDS = 12


def filler_text(words: int, seed: int) -> str:
    """Return `words` words in sentences; a shorter text of one seed begins any longer one."""
    draw = random.Random(seed)  # noqa: S311 - reproducible, not secret
    picked = draw.choices(WORDS, k=words)
    sentences = (
        " ".join(picked[start : start + _SENTENCE_WORDS])
        for start in range(0, words, _SENTENCE_WORDS)
    )
    return ". ".join(sentences)
