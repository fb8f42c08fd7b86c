"""The keys of a config that hold locations, and the locations of its corpora."""

from voxline.components.ingest.settings import HTTP_SCHEMES
from voxline.pipelines.config.keys import Values, get_key
from voxline.pipelines.steps import STEPS

SHARED_KEYS = ("store", "registry", "datasets")
"""Locations that are no step's own."""
MODEL_KEYS = tuple(f"{step.config_section}.{key}" for step in STEPS.values() for key in step.models)
"""Keys of models: a path, or a name in the registry."""
PATH_KEYS = (
    *(f"{step.config_section}.{key}" for step in STEPS.values() for key in step.paths),
    *SHARED_KEYS,
    *MODEL_KEYS,
)
"""Keys that hold paths: relative to the YAML file that sets them, or to the current folder in `--set`. Those of
`MODEL_KEYS` may hold the name of a model instead."""


def path_keys(document: Values) -> list[str]:
    """`PATH_KEYS` with the names of a document's corpora, without the key of a model that is named.

    >>> path_keys({"corpus": {"corpora": {"ours": {"uri": "recordings"}}}})[1:3]
    ['corpus.corpora.ours.uri', 'corpus.pseudo.uri']
    """
    keys = []
    for key in PATH_KEYS:
        section, star, below_name = key.partition(".*")
        names = get_key(document, section) if star else None
        named = names if isinstance(names, dict) else ()  # any other value is refused later, with its key
        keys += [f"{section}.{name}{below_name}" for name in named] if star else [key]

    # `asr@production` is a name in the registry, and must not become a path.
    return [key for key in keys if key not in MODEL_KEYS or not _names_model(str(get_key(document, key) or ""))]


def _names_model(value: str) -> bool:
    if not value:
        return False
    from voxline.registry.parents import is_model_name  # not at the top: few configs start from a model

    return is_model_name(value)


def is_http_corpus(key: str, uri: str) -> bool:
    """True if a key's value is the http(s) address of a corpus; no other location may be one."""
    return key.startswith("corpus.") and uri.startswith(HTTP_SCHEMES)


def corpus_locations(values: Values) -> list[str]:
    """The locations of a config's corpora, without the queries of addresses, which may be signatures.

    >>> corpus_locations({"corpus": {"uri": "https://bucket.example/a.zip?signature=0f3c"}})
    ['https://bucket.example/a.zip']
    >>> corpus_locations({"corpus": {"uri": "", "corpora": {"ours": {"uri": "/a"}, "theirs": {"uri": "/b"}}}})
    ['/a', '/b']
    """
    if reference := get_key(values, "corpus.dataset"):
        return [f"{values.get('datasets') or 'datasets'}/{str(reference).replace('@', '/')}"]
    named = [corpus.get("uri", "") for corpus in (get_key(values, "corpus.corpora") or {}).values()]
    drafts = get_key(values, "corpus.pseudo.uri")
    uris = [str(uri) for uri in (get_key(values, "corpus.uri"), *named, drafts) if uri]
    return [uri.partition("?")[0] if uri.startswith(HTTP_SCHEMES) else uri for uri in uris]


def corpus_uris(values: Values) -> str:
    """The locations of a config's corpora, or the name of its dataset's version, in words.

    >>> corpus_uris({"corpus": {"corpora": {"ours": {"uri": "/a"}, "theirs": {"uri": "/b"}}}})
    'ours: /a, theirs: /b'
    """
    corpora = get_key(values, "corpus.corpora") or {}
    named = ", ".join(f"{name}: {corpus.get('uri', '')}" for name, corpus in corpora.items())
    return named or str(get_key(values, "corpus.dataset") or get_key(values, "corpus.uri") or "")
