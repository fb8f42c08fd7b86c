"""What the generated speakers say: commands to a house, drawn from a grammar of 69 words.

A template's `{slot}` stands for one of the slot's choices, which may hold slots themselves;
a choice that stands there twice is drawn twice as often.
"""

import re

import numpy as np

COMMANDS = (
    "turn the {room} {device} {switch}",
    "turn {switch} the {room} {device} at {hour}",
    "turn {switch} the {device} in {number} minutes",
    "set the {clock} for {number} minutes",
    "set the {clock} for {hour} {day}",
    "set the {room} heating to {number} degrees",
    "play the {order} song in the {room}",
    "stop the {room} {sounding}",
    "{move} the {room} {opening}",
    "{move} the {opening} in the {room} at {hour}",
    "what is the {asked} {day}",
    "how {feeling} is it in the {room}",
    "call {name} {day} at {hour}",
    "remind me to call {name} at {hour}",
    "remind me to {move} the {opening} at {hour}",
    "add {drink} and {food} to the list",
)

SLOTS: dict[str, tuple[str, ...]] = {
    "switch": ("on", "off"),
    "room": ("kitchen", "bedroom", "bathroom", "garden", "garage"),
    "device": ("lights", "fan", "radio", "heating"),
    "clock": ("alarm", "timer"),
    "sounding": ("alarm", "timer", "radio"),
    "order": ("next", "last"),
    "move": ("open", "close"),
    "opening": ("door", "window"),
    "asked": ("time", "weather"),
    "day": ("today", "tomorrow"),
    "feeling": ("warm", "cold"),
    "name": ("anna", "peter", "mother"),
    "drink": ("milk", "tea"),
    "food": ("bread", "apples"),
    "unit": ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine"),
    "tens": ("twenty", "thirty", "forty"),
    "number": ("{tens} {unit}", "{tens} {unit}", "{tens}", "{hour}"),
    "hour": ("{unit}", "{unit}", "{unit}", "ten", "eleven", "twelve"),
}

_SLOT = re.compile(r"\{(\w+)\}")


def draw_commands(rng: np.random.Generator, count: int) -> list[str]:
    """Commands in lower-case words. Every template comes about equally often.

    >>> draw_commands(np.random.default_rng(4), 2)
    ['remind me to call mother at five', 'turn on the garage lights at nine']
    """
    rounds = -(-count // len(COMMANDS))
    templates = np.concatenate([rng.permutation(len(COMMANDS)) for _ in range(rounds)])[:count]
    return [_fill(COMMANDS[template], rng) for template in templates]


def vocabulary() -> list[str]:
    """Every word that a command can hold, in alphabetical order.

    >>> len(vocabulary())
    69
    """
    texts = [*COMMANDS, *(choice for choices in SLOTS.values() for choice in choices)]
    return sorted({word for text in texts for word in _SLOT.sub("", text).split()})


def _fill(template: str, rng: np.random.Generator) -> str:
    while slot := _SLOT.search(template):
        choices = SLOTS[slot[1]]
        template = template[: slot.start()] + choices[rng.integers(len(choices))] + template[slot.end() :]
    return template
