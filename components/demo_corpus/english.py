"""English sentences: strings of digits, and phrases over 359 everyday words with commas and questions."""

import numpy as np

from voxline.components.demo_corpus.grammar import Grammar, Sentence

DIGIT_WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
DIGIT_SPELLINGS = {
    "de": ("siro", "wann", "tu", "tri", "foor", "faif", "siks", "sewwen", "ejt", "nain"),
    "el": ("ζίρο", "ουάν", "του", "θρι", "φορ", "φάιβ", "σιξ", "σέβεν", "έιτ", "νάιν"),
    "es": ("siro", "uan", "tu", "srí", "for", "fáiv", "siks", "seven", "eit", "nain"),
    "fr": ("ziro", "ouanne", "tou", "sri", "for", "faïve", "sikse", "sévène", "eïte", "naïne"),
    "hi": ("ज़ीरो", "वन", "टू", "थ्री", "फोर", "फाइव", "सिक्स", "सेवन", "एट", "नाइन"),
    "it": ("ziro", "uan", "tu", "tri", "for", "faiv", "six", "seven", "eit", "nain"),
    "nl": ("ziero", "wan", "toe", "srie", "foor", "faif", "siks", "seven", "eet", "nain"),
    "pl": ("ziro", "łan", "tu", "sri", "for", "fajw", "syks", "sewen", "ejt", "najn"),
    "ru": ("зироу", "уан", "ту", "сри", "фор", "файв", "сикс", "севен", "эйт", "найн"),
    "sv": ("ziro", "uann", "to", "tri", "fårr", "fajv", "siks", "seven", "ejt", "najn"),
    "tr": ("ziro", "van", "tu", "tri", "for", "fayv", "siks", "sevın", "eyt", "nayn"),
}
"""The English digits as speakers of other languages may pronounce them, in the spelling of their own."""

DIGITS = (3, 6)
MORE_DIGITS = (8, 10)
"""Fewest and most digits of a sentence, and of a long one."""


def draw_digits(rng: np.random.Generator, count: int, *, long: bool = False) -> list[Sentence]:
    """Draws strings of digits; some may be equal.

    >>> draw_digits(np.random.default_rng(1), 1)[0].normalized
    'five seven nine zero'
    """
    fewest, most = MORE_DIGITS if long else DIGITS
    strings = [rng.integers(10, size=rng.integers(fewest, most + 1)).tolist() for _ in range(count)]
    return [
        Sentence(" ".join(map(str, string)), " ".join(DIGIT_WORDS[digit] for digit in string)) for string in strings
    ]


TEMPLATES = (
    "the {quality} {person} {bought} {count} {things} {where}.",
    "the {animal} {went} {where}, and the {person} {went} {where}.",
    "{when}, my {kin} {bought} a {quality} {thing}.",
    "where did your {kin} leave the {colour} {thing}?",
    "{name} and {name} are {doing} {where}.",
    "please {handle} the {colour} {thing} before {day}.",
    "why is the {quality} {thing} still {where}?",
    "i have never seen such a {quality} {animal}.",
    "we had {food} with {food} for {meal} {when}.",
    "it was {weather} on {day}, so we stayed {where}.",
    "the {person} gave {name} a {thing} and some {food}.",
    "can you hear the {animal} {where}?",
    "{name} thinks that the {person} is {feeling}.",
    "there are {count} {things} and {count} {creatures} {where}.",
    "{when} the {weather} wind came over the {landscape}.",
    "if you are {feeling}, drink some {drink} and {rest}.",
    "her {kin} was {doing} when the {thing} fell.",
    "no one knows how the {animal} {went} {where}.",
    "his {colour} {thing} is much {compared} than mine.",
    "they {bought} fresh {food} at the market on {day}.",
    "do not {handle} that {thing}, it belongs to the {person}.",
    "the {landscape} looks {quality} in {season}.",
    "after {meal} the {person} told us about the {landscape}.",
    "would {name} like {drink}, {drink} or {drink}?",
)

SLOTS = {
    slot: tuple(choices.split(", "))
    for slot, choices in {
        "quality": (
            "old, young, small, huge, quiet, broken, heavy, strange, gentle, famous, empty, useful, dusty, "
            "narrow, bright, wooden, simple, lovely, curious, foolish, proud, clever, rusty, precious"
        ),
        "colour": "red, blue, green, yellow, black, white, brown, purple, silver, orange",
        "person": (
            "farmer, teacher, doctor, sailor, baker, driver, painter, soldier, lawyer, nurse, judge, singer, "
            "writer, thief, guest, neighbour, captain, child, king, stranger"
        ),
        "kin": "mother, father, sister, brother, uncle, aunt, cousin, daughter",
        "name": "Anna, Peter, Martha, George, Helen, Oscar, Julia, Victor, Susan, Walter",
        "animal": "horse, fox, rabbit, bear, goose, sheep, monkey, tiger, owl, mouse, spider, whale",
        "creatures": "horses, foxes, rabbits, bears, ducks, birds, dogs, cats, cows, frogs",
        "thing": (
            "box, chair, letter, bottle, knife, clock, coat, picture, basket, ladder, mirror, hammer, candle, "
            "blanket, suitcase, umbrella, bicycle, guitar, engine, shovel"
        ),
        "things": (
            "books, chairs, letters, bottles, stones, shirts, watches, tickets, flowers, pencils, jackets, keys"
        ),
        "bought": "bought, sold, found, lost, carried, borrowed, noticed, brought, painted, stole",
        "went": "walked, ran, jumped, vanished, waited, slept, climbed, danced, wandered, returned",
        "doing": "cooking, laughing, reading, singing, working, whispering, arguing, fishing",
        "handle": "move, open, close, touch, wash, push, repair, throw",
        "rest": "go home, sit down, close your eyes, get some sleep, take a walk",
        "where": (
            "in the kitchen, under the bridge, behind the church, near the river, on the roof, by the window, "
            "across the street, in the forest, at the station, beside the road, below the stairs, outside the "
            "village, through the garden, along the beach"
        ),
        "landscape": "valley, mountain, island, harbour, desert, city, field, lake",
        "when": (
            "yesterday, this morning, last week, every evening, long ago, at midnight, once again, two years later"
        ),
        "day": "Monday, Tuesday, Wednesday, Thursday, Friday, Saturday, Sunday",
        "season": "spring, summer, autumn, winter, January, March, June, October",
        "count": "two, three, four, five, six, seven, eight, nine, ten, twelve, fifteen, twenty, thirty, hundred",
        "food": (
            "bread, cheese, soup, rice, fish, beans, butter, honey, eggs, apples, onions, pepper, chicken, grapes"
        ),
        "drink": "tea, coffee, milk, water, juice, wine",
        "meal": "breakfast, lunch, supper, dinner",
        "weather": "cold, warm, wet, stormy, cloudy, freezing",
        "feeling": "tired, happy, hungry, angry, thirsty, worried, afraid, lonely",
        "compared": "better, larger, smaller, cheaper, older, thicker",
    }.items()
}

PHRASES = Grammar(TEMPLATES, SLOTS)


def draw_phrases(rng: np.random.Generator, count: int, *, long: bool = False) -> list[Sentence]:
    """Draws sentences; some may be equal. A long one is two joined by "and".

    >>> draw_phrases(np.random.default_rng(2), 1)[0].normalized
    'After breakfast the writer told us about the lake.'
    """
    # A long sentence joins two, without the full stop between them.
    sentences = PHRASES.draw(rng, count * (1 + long))
    if long:
        sentences = [
            f"{first[:-1]}, and {second}" for first, second in zip(sentences[::2], sentences[1::2], strict=True)
        ]

    capitals = [sentence[0].upper() + sentence[1:].replace(" i ", " I ") for sentence in sentences]
    return [Sentence(sentence, sentence) for sentence in capitals]
