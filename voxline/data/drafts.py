"""Drafts: transcripts that a model wrote of recordings without one, as the rows of a corpus are marked.

Further keys of a manifest's line and of a dataset's row (pseudo-labels; Lee 2013, Xie et al. 2020, arXiv 1911.04252):
  drafted_by           "asr@3 (4f1c09aa2be0)", the model and the beginning of its digest
  draft_disagreement   word error rate between the draft and the second one of the same audio, 0 to 1
  draft_confidence     of the draft, 0 to 1

A draft is trained on, with a weight below 1. It is never in dev or test: a model would be judged by the errors of
another one.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from voxline.data.rows import DatasetRow

DRAFTED_BY = "drafted_by"
"""The key that makes a draft of a line."""
DISAGREEMENT = "draft_disagreement"
CONFIDENCE = "draft_confidence"
PSEUDO = "pseudo"
"""Name of the corpus of drafts (`corpus.pseudo`), which is in front of their ids."""
DRAFTS_FOLDER = "drafting"
DRAFTS_SETTINGS = f"{DRAFTS_FOLDER}/settings.json"
DRAFTS_SUFFIX = ".drafts"
"""Of a corpus of drafts: what models heard of each recording, whether it was kept or not, in files of lines."""


def count_drafts(rows: Iterable["DatasetRow"]) -> dict[str, int]:
    """Counts the drafts of train, by the model that wrote them."""
    models = Counter(str(row.extra[DRAFTED_BY]) for row in rows if row.split == "train" and is_draft(row.extra))
    return dict(sorted(models.items()))


def describe_drafts(counts: Mapping[str, int]) -> str:
    """The counts in words; empty without drafts.

    >>> describe_drafts({"asr@3 (4f1c09aa2be0)": 1200, "large (ba5e)": 1})
    '1,200 drafts by asr@3 (4f1c09aa2be0), 1 draft by large (ba5e)'
    """
    return ", ".join(f"{count:,} draft{'' if count == 1 else 's'} by {model}" for model, count in counts.items())


def is_draft(extra: Mapping[str, Any]) -> bool:
    """Returns whether a model wrote the transcript.

    Args:
      extra: further keys of a manifest's line, or of a dataset's row.
    """
    return bool(extra.get(DRAFTED_BY))
