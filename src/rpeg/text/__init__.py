"""Graphs and transforms as text, printed and parsed back."""

from rpeg.text.call import call_text, parse_call
from rpeg.text.graph import parse, text

__all__ = ["call_text", "parse", "parse_call", "text"]
