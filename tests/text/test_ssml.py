"""SSML: what is understood becomes symbols, rates and pauses; what is not is refused by name with its line."""

from typing import Any

import pytest

from voxline.errors import SettingsError
from voxline.inference.text_encoder import MAX_SYMBOLS, EncodedSentence, TextEncoder
from voxline.text.alphabet import ALPHABETS
from voxline.text.ssml import MAX_CHARACTERS, Pause, Span, SsmlSentence, is_ssml, parse_ssml

ALPHABET_OF = {"english": "english_speech", "english_phonemes": "phonemes", "mandarin": "pinyin_speech",
               "pinyin": "pinyin_speech", "transcript": "english", "as_is": "english_speech"}  # fmt: skip


def encode(inside: str, kind: str = "english", **frontend: Any) -> list[str | float]:
    """Symbols of sentences, and seconds of pauses."""
    model = ALPHABETS[ALPHABET_OF[kind]], {"kind": kind, **frontend}
    items = TextEncoder(*model, "voice").encode_speech(f"<speak>{inside}</speak>")
    return [item.seconds if isinstance(item, Pause) else item.symbols for item in items]


def rates(inside: str, kind: str = "english") -> list[tuple[float, str]]:
    """Runs of symbols of one rate, of the only sentence."""
    model = ALPHABETS[ALPHABET_OF[kind]], {"kind": kind}
    (item,) = TextEncoder(*model, "voice").encode_speech(f"<speak>{inside}</speak>")
    assert isinstance(item, EncodedSentence)
    assert len(item.rates) == len(item.symbols)
    runs: list[tuple[float, str]] = []
    for symbol, rate in zip(item.symbols, item.rates, strict=True):
        runs.append((rate, runs.pop()[1] + symbol if runs and runs[-1][0] == rate else symbol))
    return runs


@pytest.mark.parametrize(
    ("inside", "wanted"),
    [
        ("one two", ["one two."]),
        ('<break/>one<break time="250ms"/>two.<break time="1.5s"/>', [0.75, "one.", 0.25, "two.", 1.5]),
        ('one <break strength="x-weak"/> two <break strength="x-strong"/>', ["one.", 0.25, "two.", 1.25]),
        ('one <break strength="none"/> two', ["one two."]),
        ('one <break time="0s"/> two', ["one two."]),
        ('one <break strength="weak" time="2s"/> two', ["one.", 2.0, "two."]),
        ('<break time="1s"/><break time="500ms"/>', [1.0, 0.5]),
        ("<s>One.</s> <s>Two?</s>", ["one.", 0.5, "two?"]),
        ("<p><s>One.</s><s>Two.</s></p>\n<p>Three.</p>", ["one.", 0.5, "two.", 1.0, "three."]),
        ('<s>One.</s><break time="2s"/><s>Two.</s>', ["one.", 2.0, "two."]),
        ('<s>One.</s><break strength="none"/><s>Two.</s>', ["one.", "two."]),
        ('say <sub alias="World Wide Web">WWW</sub>, please', ["say world wide web, please."]),
        ('costs $5 <prosody rate="slow">in May 1984</prosody>!', ["costs five dollars in may nineteen eighty-four!"]),
        ('"One <prosody rate="fast">two</prosody>," he said.', ["one two, he said."]),
        ("one &lt; two &amp; <![CDATA[three]]><!-- four -->", ["one less than two and three."]),
        ('one<break time="1s"/>.', ["one.", 1.0]),
    ],
)  # fmt: skip
def test_a_document_is_sentences_and_pauses(inside: str, wanted: list[str | float]) -> None:
    assert encode(inside) == wanted


@pytest.mark.parametrize(
    ("inside", "wanted"),
    [
        ("One. Two, three! <break time='1s'/> Four? Five.", ["one.", 0.5, "two, three!", 1.0, "four?", 0.5, "five."]),
        ("<s>One. Two.</s> Three. Four.", ["one. two.", 0.5, "three.", 0.5, "four."]),
        ("A <prosody rate='slow'>bell. It</prosody> rang.", ["a bell.", 0.5, "it rang."]),
        ("<prosody rate='slow'>One.</prosody> “Two.”", ["one.", 0.5, "two."]),
        ("A <sub alias='Web. Consortium'>W3C</sub>. Two", ["a web.", 0.5, "consortium.", 0.5, "two."]),
    ],
)  # fmt: skip
def test_text_outside_of_s_is_cut_at_its_sentences(inside: str, wanted: list[str | float]) -> None:
    assert encode(inside) == wanted


def test_the_rates_of_a_cut_sentence_are_those_of_its_symbols() -> None:
    model = ALPHABETS["english_speech"], {"kind": "english"}
    document = f"<speak><s><prosody rate='slow'>{'one ' * 100}two,</prosody> {'three ' * 150}four</s></speak>"
    items = TextEncoder(*model, "voice").encode_speech(document)
    sentences = [item for item in items if isinstance(item, EncodedSentence)]
    assert len(sentences) == 2
    assert all(len(one.symbols) == len(one.rates) <= MAX_SYMBOLS for one in sentences)
    words = [word for one in sentences for word in one.symbols.replace(",", "").replace(".", "").split()]
    assert words == ["one"] * 100 + ["two"] + ["three"] * 150 + ["four"]
    slow = "".join(
        symbol for one in sentences for symbol, rate in zip(one.symbols, one.rates, strict=True) if rate == 0.75
    )
    assert slow.rstrip(" .,") == " ".join(["one"] * 100 + ["two"])


@pytest.mark.parametrize(
    ("inside", "kind", "wanted"),
    [
        ("the <sub alias='World Wide Web'>W3C</sub>'s page", "english", "the world wide web's page."),
        ("<prosody rate='slow'>Anna</prosody>'s cat", "english", "anna's cat."),
        ("<prosody rate='slow'>we</prosody>’ll go", "english", "we'll go."),
        ("<prosody rate='slow'>James</prosody>' cat", "english", "james' cat."),
        ("<prosody rate='slow'>Anna</prosody> 's cat", "english", "anna s cat."),
        ("<prosody rate='slow'>Anna</prosody>, 'so' he", "english", "anna, so he."),
        ("<phoneme ph='kˈæt'>cat</phoneme>'s", "english_phonemes", "kˈæts."),
        ("<phoneme ph='bˈɑːks'>box</phoneme>’s", "english_phonemes", "bˈɑːksᵻz."),
    ],
)
def test_what_ends_a_word_directly_behind_an_element_stays_with_it(inside: str, kind: str, wanted: str) -> None:
    assert encode(inside, kind) == [wanted]


def test_the_possessive_of_a_pronunciation_is_that_of_espeak() -> None:
    from voxline.text.phonemes import add_possessive, phonemize

    for word in ("cat", "dog", "box", "judge", "bush", "leaf", "king", "tomato", "bell", "cup", "rose", "sky", "jazz"):
        assert add_possessive(phonemize(word)) == phonemize(f"{word}'s"), word


def test_a_nested_rate_replaces_the_outer_one_for_its_words_alone() -> None:
    inside = 'one <prosody rate="slow">two <prosody rate="180%">three</prosody> four</prosody>, five'
    assert rates(inside) == [(1, "one"), (0.75, " two"), (1.8, " three"), (0.75, " four"), (1, ", five.")]
    assert rates('<prosody rate="x-fast">one</prosody>') == [(2, "one.")]
    assert rates('<prosody rate="100%">one</prosody> two') == [(1, "one two.")]
    assert rates('one<prosody rate="50%"> two</prosody>', "transcript") == [(1, "one"), (0.5, " two")]
    assert rates('a <prosody rate="50%">b</prosody>c', "as_is") == [(1, "a "), (0.5, "b"), (1, "c")]
    assert rates('\n a <prosody rate="50%"> b</prosody> c', "as_is") == [(1, "a "), (0.5, "b"), (1, " c")]


def test_mandarin_is_read_by_its_frontend_and_a_syllable_may_be_given() -> None:
    assert encode("<s>你好，<prosody rate='slow'>银行</prosody>！</s>", "mandarin") == ["ni2 hao3, yin2 hang2!"]
    assert encode("今天<break time='300ms'/>很好", "mandarin") == ["jin1 tian1.", 0.3, "hen2 hao3."]
    assert encode("<phoneme alphabet='pinyin' ph='chóng'>重</phoneme>庆。", "mandarin") == ["chong2 qing4."]
    assert encode("<phoneme ph='zhong4'>重</phoneme>", "mandarin") == ["zhong4."]
    assert encode("ni3 <phoneme ph='hǎo'/> ma5?", "pinyin") == ["ni3 hao3 ma5?"]
    assert encode("<sub alias='世界'>WORLD</sub>你好", "mandarin", sandhi=False) == ["shi4 jie4 ni3 hao3."]
    with pytest.raises(SettingsError, match=r"line 1: .*'ipa' is not this voice's; pinyin is accepted"):
        encode("<phoneme alphabet='ipa' ph='x'>重</phoneme>", "mandarin")
    with pytest.raises(SettingsError, match=r"line 1: .*not a syllable of Mandarin"):
        encode("<phoneme ph='xyz4'>重</phoneme>", "mandarin")


def test_phonemes_are_put_among_those_of_the_text() -> None:
    inside = 'say <phoneme alphabet="ipa" ph="təˈmɑː.toʊ">tomato</phoneme>, please'
    assert encode(inside, "english_phonemes") == ["sˈeɪ təmˈɑːtoʊ, plˈiːz."]
    with pytest.raises(SettingsError, match=r"line 2: 'x': 'ʘ' .* has no sound; the sounds of espeak-ng's en-us"):
        encode('\n<phoneme ph="ʘa">x</phoneme>', "english_phonemes")
    with pytest.raises(SettingsError, match=r"no phonemes .*english\); write <sub alias>.*english_phonemes"):
        encode('<phoneme ph="a">x</phoneme>', "english")


@pytest.mark.parametrize(
    ("document", "told"),
    [
        ("<speak>\n<emphasis>one</emphasis></speak>", r"line 2: <emphasis> is not understood; speak, p, s, break"),
        ('<speak xmlns:m="urn:m"><m:mood/></speak>', r"line 1: <mood xmlns=urn:m> is not understood"),
        ('<speak>a<prosody pitch="high">b</prosody></speak>', r'pitch="high"> is not understood; accepted: rate'),
        ('<speak>a<prosody rate="0%">b</prosody></speak>', r'rate="0%">: 50% to 200% of the usual rate'),
        ('<speak>a<prosody rate="-20%">b</prosody></speak>', r'rate="-20%">: 50% to 200%'),
        ('<speak>a<prosody rate="+20%">b</prosody></speak>', r'rate="\+20%">: .*100% is no change'),
        ("<speak>a<prosody>b</prosody></speak>", r'<prosody rate="">: 50% to'),
        ('<speak>a<break time="5"/></speak>', r'<break time="5">: 0 to 20 seconds are accepted, such as 250ms'),
        ('<speak>a<break time="21s"/></speak>', r'time="21s">: 0 to 20 seconds'),
        ('<speak>a<break strength="huge"/></speak>', r'strength="huge">: accepted: none, x-weak'),
        ("<speak>a<break>b</break></speak>", r"<break> has text inside"),
        ("<speak><phoneme>b</phoneme></speak>", r"<phoneme> has no ph"),
        ("<speak><sub>b</sub></speak>", r"<sub> has no alias"),
        ('<speak><sub alias="a"><break/></sub></speak>', r"<break> is inside <sub>"),
        ("<speak><s>a<p>b</p></s></speak>", r"<p> is inside <s>"),
        ("<speak><s>a<s>b</s></s></speak>", r"<s> is inside <s>"),
        ("<speak>a<speak>b</speak></speak>", r"<speak> is inside <speak>"),
        ("<speak>one\n<s>two</speak>", r"line 2: the XML is not well-formed: mismatched tag"),
        ("<speak>one</speak> two", r"not well-formed"),
        ("<speak>a &nbsp; b</speak>", r"line 1: .*undefined entity"),
        ("<speak>\n<?pause?>a</speak>", r"line 2: the processing instruction <\?pause\?>"),
        ("<speak/>", "document is empty"),
        ("<speak> \n </speak>", "document is empty"),
        ('<speak version="1.1" xml:lang="de">eins</speak>', r'line 1: xml:lang="de", and this voice speaks english'),
        ("<speak>a\n<s>☃</s></speak>", r"line 2: '☃': .*SNOWMAN"),
        ('<speak><sub alias="two">2</sub>\n one\n ☃ three\n\n<break/></speak>', r"line 1: 'two\\n one\\n ☃"),
        ("<speak>\none.\nTwo\n☃ three.\nfour</speak>", r"line 3: '\\nTwo\\n☃ three\.\\nfour': .*SNOWMAN"),
        ("<speak>\n\n☃\n<break/>\n</speak>", r"line 3: '.*☃"),
        ("<speak>one\n<!-- a\nnote -->\n☃<s>two</s></speak>", "line 1: "),
        ("<speak>" + '<break time="20s"/>' * 31 + "</speak>", "620 s of pauses; 600 s are accepted"),
        ("<speak>\ud800</speak>", "not Unicode"),
        ("<speak>" + " " * MAX_CHARACTERS + "</speak>", "50,015 characters; 50,000 are accepted"),
    ],
)  # fmt: skip
def test_what_is_not_understood_is_refused_by_name_with_its_line(document: str, told: str) -> None:
    encoder = TextEncoder(ALPHABETS["english_speech"], {"kind": "english"}, "voice")
    with pytest.raises(SettingsError, match=told) as refused:
        encoder.encode_speech(document)
    assert len(str(refused.value)) < 700


BOMB = "<!DOCTYPE speak [{}]><speak>&e9;</speak>".format(
    '<!ENTITY e0 "ha">' + "".join(f'<!ENTITY e{n} "{f"&e{n - 1};" * 10}">' for n in range(1, 10))
)


@pytest.mark.parametrize(
    "document",
    [
        BOMB,
        '<?xml version="1.0"?>\n<!DOCTYPE speak [<!ENTITY file SYSTEM "file:///etc/hostname">]><speak>&file;</speak>',
        '<!DOCTYPE speak SYSTEM "http://127.0.0.1:9/speak.dtd"><speak>one</speak>',
        '<!DOCTYPE speak PUBLIC "-//W3C//DTD SYNTHESIS 1.0//EN" "synthesis.dtd"><speak>one</speak>',
    ],
)
def test_entities_are_neither_expanded_nor_read(document: str) -> None:
    with pytest.raises(SettingsError, match=r"SSML, line \d: a document type declaration .*entities are refused"):
        parse_ssml(document)


def test_deep_nesting_is_read_and_costs_little() -> None:
    document = "<speak>" + '<prosody rate="fast">' * 1_600 + "one" + "</prosody>" * 1_600 + "</speak>"
    assert parse_ssml(document).items == (SsmlSentence((Span("one", 1.5),)),)


def test_a_document_of_w3c_is_recognized_and_plain_text_is_not() -> None:
    document = (
        '\ufeff<?xml version="1.0" encoding="ISO-8859-1"?>\n<speak version="1.1" xml:lang="en-US"\n'
        ' xmlns="http://www.w3.org/2001/10/synthesis" xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"\n'
        ' xsi:schemaLocation="http://www.w3.org/2001/10/synthesis synthesis.xsd">\n<s>Café.</s></speak>'
    )
    assert is_ssml(document)
    assert encode("x") == ["x."]
    encoder = TextEncoder(ALPHABETS["english_speech"], {"kind": "english"}, "voice")
    (item,) = encoder.encode_speech(document)
    assert isinstance(item, EncodedSentence)
    assert item.symbols == "cafe."
    assert not any(map(is_ssml, ("one < two", "<speaker> says", "speak", "", "<b>one</b>")))
    (plain,) = encoder.encode_speech("one, <two>")
    assert isinstance(plain, EncodedSentence)
    assert plain.symbols == encoder.encode("one, <two>").symbols


@pytest.mark.parametrize(
    "text", ["<!-- a note --><speak>a</speak>", '<s:speak xmlns:s="http://www.w3.org/2001/10/synthesis"/>']
)
def test_a_comment_first_or_a_prefix_is_ssml_too(text: str) -> None:
    assert is_ssml(text)
