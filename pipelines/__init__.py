"""In which order the steps run, and how a run is started, watched and recorded."""
