"""Digests of many things, held in little more than their own 16 bytes: a set of strings takes eight times as much."""

import hashlib

from components.speech.storage import DIGEST_BYTES


class Fingerprint:
    """The name of a set, of the digests of its members in whatever order; it holds 16 bytes of each.

    >>> from components.speech.storage import hash_value
    >>> found = Fingerprint()
    >>> for value in ("b", "a"):
    ...     found.add(bytes.fromhex(hash_value(value)))
    >>> found.name() == hash_value(sorted(hash_value(value) for value in ("a", "b")))
    True
    """

    def __init__(self) -> None:
        self._by_first = [bytearray() for _ in range(256)]  # so that few at a time are sorted

    def add(self, digest: bytes) -> None:
        self._by_first[digest[0]] += digest

    def name(self) -> str:
        """The hash of the sorted list of the digests in hexadecimal, as JSON."""
        whole, between = hashlib.blake2b(digest_size=DIGEST_BYTES), b'["'
        for found in self._by_first:
            digests = sorted(bytes(found[at : at + DIGEST_BYTES]) for at in range(0, len(found), DIGEST_BYTES))
            if digests:
                whole.update(between + b'","'.join(digest.hex().encode() for digest in digests))
                between = b'","'
        whole.update(b"[]" if between == b'["' else b'"]')
        return whole.hexdigest()
