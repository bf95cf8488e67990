"""What happened: spans and events, of a simulated or a real run alike."""
