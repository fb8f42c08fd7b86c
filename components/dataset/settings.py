"""Settings of dataset."""

from voxline.components.ingest.settings import CorporaSettings


class VersionSettings(CorporaSettings):
    """The section `corpus` of a run on a published version."""

    EXPOSED = ("dataset",)
