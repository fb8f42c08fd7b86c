"""Buckets: objects in Google Cloud Storage, and the faults of a network told to a person.

Everything that talks to a bucket goes through `Bucket`; Google's library stands in this package alone.
"""

from components.speech.buckets.bucket import Bucket
from components.speech.buckets.entry import Entry
from components.speech.buckets.place import is_remote
from components.speech.errors import Changed

__all__ = ["Bucket", "Changed", "Entry", "is_remote"]
