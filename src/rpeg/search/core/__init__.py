"""The compiled core of the search: C over numpy arrays, built at installation or at its first use."""
