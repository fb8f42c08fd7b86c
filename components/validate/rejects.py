"""The list of rejects beside a manifest: what the step before left out."""

import collections
from pathlib import Path

from components.speech.storage import hash_value
from components.speech.utterances import REJECTS, manifest_file, read_rejects


def rejects_beside(manifest: Path) -> tuple[dict[str, int] | None, str]:
    """What stands in the list of rejects beside a manifest: how many of each code, and what names them."""
    beside = manifest_file(manifest).parent / REJECTS
    if not beside.is_file():
        return None, ""
    rejects = read_rejects(beside)
    codes = collections.Counter(str(reject.reason) for reject in rejects).most_common()
    return dict(codes), hash_value(sorted([reject.id, str(reject.reason)] for reject in rejects))
