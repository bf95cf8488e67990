"""Built-in verifiers: one file each with `reward(prompt_text, response_text, answer) -> float`, run in linear time.

A new file here is a new `reward.name`.
"""
