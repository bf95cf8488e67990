"""Built-in verifiers: one file each with `reward(prompt_text, response_text, answer) -> float`.

A new file here is a new `reward.name`. Unless it takes linear time whatever the texts are, it says `ISOLATED = True`:
then it runs in a process that `reward.time_limit_seconds` can end. What else it is called with, `Reward.options` says.
"""
