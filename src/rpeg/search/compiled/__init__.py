"""What the search does most often, on arrays: compiled by numba where that is installed, else plain Python.

Both ways give equal results; without numba a search of the same step budget takes a hundred times as long.
"""
