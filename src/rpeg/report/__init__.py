"""What a person reads: tables, summaries, live views, trace exports."""
