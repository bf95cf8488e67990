"""Workers that only pretend, under the driver and the actors of real runs: times are a cost model's."""
