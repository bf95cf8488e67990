"""The graph: models, stages and the edges that join them, also across steps."""
