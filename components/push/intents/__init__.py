"""Push for classifiers of texts by their intent."""
