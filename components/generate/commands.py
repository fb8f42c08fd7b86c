"""What the speakers of the demo corpus say: commands to a house, of 69 words."""

from components.generate.grammar import Grammar

TEMPLATES = (
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

COMMANDS = Grammar(TEMPLATES, SLOTS)
