"""Whether the places of a config are there, and may be read and written: corpus, store, registry, datasets."""

import contextlib
import os
from collections.abc import Iterator

from components.speech.buckets import Bucket, is_remote
from components.speech.errors import VoxlineError
from pipelines.cluster.finding import Finding
from pipelines.dotted import get
from pipelines.run_config import RunConfig

READ = ("storage.objects.get", "storage.objects.list")
WRITE = (*READ, "storage.objects.create", "storage.objects.delete")
NEEDS = {"corpus.uri": READ, "store": WRITE, "registry": WRITE, "datasets": WRITE}
"""Key → the permissions that a run needs there."""
DEADLINE = "VOXLINE_BUCKETS_DEADLINE_SECONDS"


def places(config: RunConfig, deadline: float) -> Iterator[Finding]:
    """Seen with the credentials of whoever looks; a pod has those of its service account.

    Args:
      deadline: seconds that one answer of a bucket may take, unless the environment says how many.
    """
    values = config.plain()
    for key, needed in NEEDS.items():
        place = str(get(values, key) or "")
        if not place:
            continue
        if not is_remote(place):
            yield _path(config, key, place)
            continue
        try:
            with _patience(deadline):
                found = list(_bucket(key, place, needed))
            yield from found
        except VoxlineError as error:
            yield Finding.problem(key, str(error))


@contextlib.contextmanager
def _patience(seconds: float) -> Iterator[None]:
    """A run waits for a storage for minutes; a person who asks whether it is there does not."""
    if DEADLINE in os.environ:
        yield
        return
    os.environ[DEADLINE] = str(seconds)
    try:
        yield
    finally:
        del os.environ[DEADLINE]


def _path(config: RunConfig, key: str, place: str) -> Finding:
    if config.cluster.mounts(place):
        return Finding.not_checked(key, f"{place}: it lies on a volume, which only pods see")
    return Finding.problem(
        key, f"{place}: no volume of the config is mounted there, so pods do not see it",
        f"--set {key}=gs://bucket/folder, or a claim under cluster.claims whose mount holds it",
    )  # fmt: skip


def _bucket(key: str, place: str, needed: tuple[str, ...]) -> Iterator[Finding]:
    bucket = Bucket(place)
    first = next(iter(bucket.list()), None)
    if key == "corpus.uri" and first is None:
        yield Finding.problem(
            key, f"{place}: nothing lies there", f"gcloud storage cp -r /your/corpus/* {place}/, or another corpus.uri"
        )
        return
    try:
        held = set(
            bucket.connection.client.bucket(bucket.bucket).test_iam_permissions(list(needed), timeout=15, retry=None)
        )
    except Exception as error:  # storages that speak Google's protocol need not know this call
        yield Finding.ok(key, f"{place}: can be listed")
        yield Finding.not_checked(key, f"{place}: the storage does not say what is allowed ({type(error).__name__})")
        return
    missing = [one for one in needed if one not in held]
    if missing:
        role = "roles/storage.objectViewer" if needed == READ else "roles/storage.objectUser"
        yield Finding.problem(
            key,
            f"{place}: you lack {', '.join(missing)}",
            f"gcloud storage buckets add-iam-policy-binding gs://{bucket.bucket} --member=… --role={role}",
        )
    else:
        yield Finding.ok(key, f"{place}: can be {'read' if needed == READ else 'read and written'}")
