"""In which order the steps run: the graphs, and how one is started."""
