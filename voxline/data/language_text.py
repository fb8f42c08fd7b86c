"""Text for a language model: its lines as transcripts, without the sentences of dev and test."""

import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path

from voxline.errors import SettingsError, TransientError, WorkError
from voxline.store.objects import open_store
from voxline.store.size_limits import BoundedGzip, SizeLimitError, iter_bounded_lines, open_regular
from voxline.text.alphabet import Alphabet, UnsupportedText, split_words
from voxline.text.settings import LanguageTextSettings

NAMED = 3
"""Sentences in one message."""
Words = tuple[str, ...]


def held_out_sentences(texts: Iterable[tuple[str, str]]) -> set[Words]:
    """The sentences of dev and test that train lacks.

    Args:
      texts: the split and the transcript of each utterance.

    >>> sorted(held_out_sentences([("train", "one two"), ("test", "one two"), ("dev", "two one")]))
    [('two', 'one')]
    """
    trained = set()
    held_out = set()
    for split, text in texts:
        if split == "train":
            trained.add(text)
        elif split in ("dev", "test"):
            held_out.add(text)

    # A sentence that train has too teaches the model nothing new about dev and test.
    return {tuple(split_words(text)) for text in held_out - trained if text}


def check_language_text(settings: LanguageTextSettings, texts: Iterable[tuple[str, str]]) -> None:
    """Reads all text as the step language will, so that what it refuses is known before a model is trained for it.

    Args:
      texts: as of `held_out_sentences`.

    Raises:
      WorkError: a file is absent or damaged, or holds sentences of dev or test.
    """
    if settings.text:
        text = LanguageText(settings, held_out_sentences(texts))
        for _ in text.lines():
            pass
        text.refuse_held_out()


def check_text_exists(settings: LanguageTextSettings, arpa: str = "") -> None:
    """Raises: SettingsError: a text file, or the ARPA file, does not exist; nothing is downloaded."""
    locations = [("language.text", uri, _LINES) for uri in settings.text]
    locations += [("language.arpa", arpa, ARPA)] if arpa else []
    for key, uri, expected in locations:
        folder, name = _split(uri)
        if open_store(folder).stat(name) is None:
            raise SettingsError(_ABSENT.format(key, uri, expected))


_ABSENT = "{}: {}: it does not exist; give {}"
_LINES = "text files, one sentence a line"
ARPA = "an n-gram model as SRILM and KenLM write it"


class LanguageText:
    """The lines of text files, as transcripts; what was left out is counted.

    Attributes:
      files: on this machine.
      dropped: lines with sentences of dev or test.
      unreadable: lines that the frontend cannot read.

    Raises:
      WorkError: a file does not exist.
    """

    def __init__(self, settings: LanguageTextSettings, held_out: set[Words]) -> None:
        self.files = [local_file("language.text", uri, _LINES) for uri in settings.text]
        self._settings = settings
        self._letters = Alphabet.from_name(settings.alphabet).characters if settings.alphabet else ""

        # Short sentences such as "yes" occur in any text; to drop them would drop good lines.
        self._held_out = {words for words in held_out if len(words) >= settings.held_out_words}
        # Longer ones are found within a line too, by their first words.
        self._start = 2 * settings.held_out_words
        self._by_start: dict[Words, list[Words]] = {}
        for words in sorted(self._held_out):
            if len(words) >= self._start:
                self._by_start.setdefault(words[: self._start], []).append(words)
        self._found: dict[str, str] = {}
        self.dropped = self.unreadable = 0

    def lines(self) -> Iterator[list[str]]:
        """The words of each line."""
        from voxline.text.frontend import apply_frontend

        # Line numbers count blank lines, so that messages agree with an editor.
        for uri, file in zip(self._settings.text, self.files, strict=True):
            for number, line in enumerate(_read_lines(file, uri), 1):
                if not line.strip():
                    continue
                # What the acoustic model cannot write, the language model must not learn.
                try:
                    symbols = apply_frontend(line.strip(), self._settings.frontend, self._letters).symbols
                    words = split_words(symbols)
                except UnsupportedText:
                    self.unreadable += 1
                    continue
                if self._settings.held_out != "keep" and (leaked := self._leaked(tuple(words))):
                    for sentence in leaked:
                        self._found.setdefault(" ".join(sentence), f"{uri}, line {number:,}")
                    self.dropped += 1
                    continue
                yield words

    def _leaked(self, words: Words) -> list[Words]:
        """The sentences of dev and test that a line is or holds."""
        # The whole line first, then every place at which a long sentence may begin.
        sentences = [words] if words in self._held_out else []
        for first in range(len(words) - self._start + 1 if self._by_start else 0):
            # A look-up by the first words keeps this linear: a corpus has thousands of held-out sentences.
            for sentence in self._by_start.get(words[first : first + self._start], ()):
                if words[first : first + len(sentence)] == sentence and sentence not in sentences:
                    sentences.append(sentence)
        return sentences

    def refuse_held_out(self) -> None:
        """Raises: WorkError: the files hold sentences of dev or test, and the settings refuse them."""
        if not self._found or self._settings.held_out != "refuse":
            return
        named = "; ".join(f"{text!r} ({where})" for text, where in list(self._found.items())[:NAMED])
        raise WorkError(
            f"language.text holds {len(self._found):,} of the {len(self._held_out):,} sentences of dev and test that "
            f"train lacks, such as {named}. A language model that knows the answers makes the error rate too good. "
            "Take the lines out, or let language.held_out: drop leave them out; keep accepts them"
        )


def _split(uri: str) -> tuple[str, str]:
    folder, slash, name = uri.rpartition("/")
    return (folder or slash or "."), name


def local_file(key: str, uri: str, expected: str) -> Path:
    """A file on this machine, downloaded if it is in a bucket.

    Args:
      key: of the config, and what is expected there, for messages.

    Raises:
      WorkError: it does not exist.
    """
    folder, name = _split(uri)
    store = open_store(folder)
    try:
        # A bucket that does not answer may do so on a retry; only a final answer means absent.
        store.pull([name])
    except TransientError:
        raise
    except WorkError as error:
        raise WorkError(f"{_ABSENT.format(key, uri, expected)} ({error})") from error
    if not (file := store.local_path(name)).is_file():
        raise WorkError(_ABSENT.format(key, uri, expected))
    return file


def _read_lines(file: Path, uri: str) -> Iterator[str]:
    try:
        # Both readers bound the length of a line: one gzip of zeros would otherwise fill the memory.
        with BoundedGzip(file) if str(file).endswith(".gz") else open_regular(file) as lines:
            for _, line in iter_bounded_lines(lines, uri):
                yield line.decode("utf-8")
    except SizeLimitError as error:
        raise WorkError(f"language.text: {error}") from None
    except (OSError, EOFError, UnicodeDecodeError, zlib.error) as error:
        raise WorkError(f"language.text: {uri}: cannot be read ({error}); text in UTF-8 is accepted") from None
