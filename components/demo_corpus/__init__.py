"""Generated speech in a publisher's layout: a corpus for whoever has none at hand."""
