"""What a step works on: prompts, samples and how long they are."""
