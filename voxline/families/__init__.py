"""The families of models: a folder each, behind `family.Family`."""
