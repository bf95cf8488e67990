"""How one model is cut over devices: tensor, context, pipeline and expert parallelism."""
