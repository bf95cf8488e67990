"""Data backends: prompts and the tokenizer that reads them."""

from rpeg.backends.data.prompts import Prompt, Prompts, chat, load_prompts, tokenise
from rpeg.backends.data.tokenizer import load_tokenizer, notes

__all__ = ["Prompt", "Prompts", "chat", "load_prompts", "load_tokenizer", "notes", "tokenise"]
