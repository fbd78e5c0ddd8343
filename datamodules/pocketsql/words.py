"""Names for the random schemas of demonstrations: nouns, made-up words, and names of two words.

A model that has seen a fresh schema in every demonstration must copy names from the prompt instead of knowing
them, which is what lets it answer on databases that it never saw.
"""

from __future__ import annotations

import random

from datamodules.pocketsql.schemas import SPLITS

_NOUNS_TEXT = """
acid actress agency album alley almond altar anchor angle ankle answer ant apple arch arena arm army arrow artist
ash atlas attic aunt avenue axe badge bag baker balcony ball banana band banjo bank banner barn barrel basin basket
bath battery battle beach bead beak beam bean bear beard bed beetle bell belt bench berry bicycle bill bird biscuit
blade blanket block blouse board boat bone bonus boot border bottle bow bowl box bracelet brain branch bread breeze
brick bride bridge broom brother brush bubble bucket bud bulb bus bush butter button cabin cable cactus cage cake
calf camel camera camp canal candle candy cannon canoe canvas cap cape captain carpet carrot castle cat cattle cave
ceiling cellar chain chair chalk cheese cherry chest chicken chimney chin church circle circus cliff clock cloth
cloud clown coach coal coat coconut coffee coin collar colony comb comet compass cone copy coral cord corn corner
cottage cotton cousin cow crab cradle crane crate crayon cream creek cricket crown cucumber cup curtain curve
cushion dam dance daughter deer desert desk diamond diary dinner disc dock doll dolphin donkey door dove dragon
drawer dress drum duck dust eagle ear easel echo edge eel egg elbow elephant elm engine envelope eraser fabric face
factory fan feast feather fence fern ferry festival fiddle fig film finger fir fire fist flame flask flock floor
flour flower flute fly foam fog forest fork fort fountain fox frame frog frost fruit fur garage garden garlic gate
gem ghost giant gift giraffe glacier glass globe glove glue goat goose gown grape grass grave guest guide guitar gun
gym hail hammer hand harp hat hawk hay heart hedge heel helmet hen herb herd hero hill hinge hive hole honey hook
horn horse hose hospital hotel house hut ice igloo ink inn insect island ivy jacket jail jam jar jaw jelly jewel
joke judge jug juice jungle jury kettle key kid king kite kitten knee knife knight knot label lace ladder lake lamb
lamp land lantern lawn lawyer leaf leather lemon lens letter lever library lid light lily limb lime lip lizard
locket log lunch lung machine magnet maid mail mango maple marble market mask mast mat meal medal melon memory mill
mint mirror mitten moat mole monkey moon moose mop moss moth motor mountain mouse mouth mud mug mule muscle museum
mushroom nail napkin neck needle nephew nerve nest net niece night noodle nose note novel nurse nut oak oar oasis
oat ocean office olive onion orange orchid otter oven owl ox oyster pail paint palace palm pan panda paper parcel
parent park parrot path patch peach peanut pear pearl pebble pen pencil pepper perch petal photo piano pickle pie
pig pigeon pillow pin pine pipe pirate pit pizza plant plate plow plum pocket poem poet pond pony pool porch port
post pot potato pouch powder prince prize pump puppet purse puzzle quail quarry quilt rabbit radio raft rail rain
rake ranch rat raven razor recipe reef ribbon rice ring river road robe robin robot rock roof root rope rose rug
ruler saddle sail salad salt sand sauce saw scale scarf school scissors screw seal seat seed shade shadow shark
sheep shelf shell ship shirt shoe shop shore shoulder shovel sink sister skirt sled sleeve slope snail snake snow
soap sock sofa soil soldier son soup spade spark spear spider spine sponge spoon spring spy stable stage stair star
statue steam stem step stick stone stool store storm stove straw stream street string suit sugar swan sweater swing
sword tail tank tea tent thread throat throne thumb thunder ticket tiger tile toad toast toe tomato tongue tool
tooth torch towel tower toy trail train tray treasure tree truck trumpet trunk tub tulip tunnel turkey turtle twig
twin umbrella uncle valve van vase vault vegetable veil vein vest village vine violin voice volcano wagon waist wall
wallet walnut wasp watch water wave web whale wheat wheel whip whistle wig willow wind window wing wire witch wolf
wood wool worm wrist yacht yarn zebra
"""
_NOUNS = _NOUNS_TEXT.split()
_ONSETS_TEXT = """
b bl br c ch cl cr d dr f fl fr g gl gr h j k l m n p pl pr qu r s sc sh sk sl sp st str t th tr v w z
"""
_ONSETS = _ONSETS_TEXT.split()
_VOWELS = ["a", "e", "i", "o", "u", "a", "e", "i", "o", "ai", "ea", "ee", "ou", "oo"]
_CODAS = ["n", "r", "s", "t", "l", "m", "d", "p", "ck", "sh", "th", "ng", "nd", "st", "nt", *[""] * 8]

# Words that SQL or the notation of the prompt gives a meaning.
_RESERVED_TEXT = """
abort action array cube lock map struct add after all alter and as asc attach avg before begin between by case cast
check column commit count create cross current default delete desc detach distinct do drop each else end escape
except exists explain fail filter first following for foreign from full glob group having if ignore in index inner
insert instead intersect into is isnull join key last left like limit match max min natural no not null of offset on
or order others outer over partition plan pragma primary query raise range rank recursive references release rename
replace right rollback row rows select set sum table temp then to top total transaction trigger union unique update
using vacuum values view virtual when where window with within without question approach parent sql
"""
_RESERVED = frozenset(_RESERVED_TEXT.split())

PSEUDO_SHARE = 0.35
TWO_WORD_SHARE = 0.25


def held_out_names() -> frozenset[str]:
    """Names of tables and columns of the validation and test databases that no training database has."""
    seen = {name for schema in SPLITS["train"].values() for name in _schema_names(schema)}
    held = {name for split in ("validation", "test") for s in SPLITS[split].values() for name in _schema_names(s)}
    return frozenset(held - seen)


def _schema_names(schema: object) -> set[str]:
    tables = schema.tables  # type: ignore[attr-defined]
    return {table.name for table in tables} | {column.name for table in tables for column in table.columns}


_HELD_OUT = held_out_names()
# A schema may add an s to a name, so words that become a held-out name by it are left out too.
_FORBIDDEN = _RESERVED | _HELD_OUT | {name.removesuffix("s") for name in _HELD_OUT}
NOUNS = tuple(sorted({noun for noun in _NOUNS if noun not in _FORBIDDEN}))


def pseudo_word(rng: random.Random) -> str:
    """A pronounceable word of three to nine letters that is no keyword and no held-out name."""
    while True:
        syllables = rng.choice((1, 2, 2, 2, 3))
        word = "".join(rng.choice(_ONSETS) + rng.choice(_VOWELS) + rng.choice(_CODAS) for _ in range(syllables))
        if 3 <= len(word) <= 9 and word not in _FORBIDDEN:
            return word


def word(rng: random.Random) -> str:
    """A noun or a made-up word."""
    return pseudo_word(rng) if rng.random() < PSEUDO_SHARE else rng.choice(NOUNS)


def name(rng: random.Random) -> str:
    """A name for a table or a column: one word, or two joined by an underscore."""
    return f"{word(rng)}_{word(rng)}" if rng.random() < TWO_WORD_SHARE else word(rng)


def distinct_names(rng: random.Random, count: int) -> list[str]:
    """`count` different names."""
    names: dict[str, None] = {}
    while len(names) < count:
        names[name(rng)] = None
    return list(names)
