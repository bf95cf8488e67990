"""The pure scheduler that the simulator and the runtime both drive."""
