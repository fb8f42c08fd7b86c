"""VITS: a network from symbols to samples; public voices of it in two layouts, and Piper's form of ours."""
