"""How many modules of ours each module may load, directly or through others: python -m tests.reach MODULE..."""

import sys

import grimp


def main() -> None:
    """Prints a line for each module named."""
    graph = grimp.build_graph("voxline")
    for offered in graph.find_modules_directly_imported_by("voxline"):  # lazily, when a name is used
        graph.remove_import(importer="voxline", imported=offered)
    for module in sys.argv[1:]:
        print(f"{len(graph.find_upstream_modules(module)):4d}  {module}")


if __name__ == "__main__":
    main()
