"""Makes `tests` a place to import shared helpers from."""
