"""Changes of a graph's structure: one file each."""
