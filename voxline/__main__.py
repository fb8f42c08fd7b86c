"""`python -m voxline`: the command `voxline`."""

from voxline.pipelines.cli.main import main

main()
