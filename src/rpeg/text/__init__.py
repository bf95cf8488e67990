"""Graphs and transforms as text, printed and parsed back."""
