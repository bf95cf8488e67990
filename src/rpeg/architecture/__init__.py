"""The shapes of a language model, read from data or a Hugging Face config.json."""
