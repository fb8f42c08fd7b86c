"""Training of classifiers of texts by their intent."""
