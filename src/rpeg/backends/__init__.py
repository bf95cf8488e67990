"""What does the work: training, generation, reward, data and their fakes."""
