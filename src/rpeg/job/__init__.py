"""The job file: what the user wants trained."""
