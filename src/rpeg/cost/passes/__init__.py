"""What RPEG's own backends take on the machine that was calibrated: whole passes, looked up in measured tables.

A table holds seconds of a prefill, a decode step, a forward and backward … of one architecture over shapes of
batches, measured through the very code that runs them (`rpeg calibrate`). Where a table is missing a plain roofline
stands in. Hardware that is not at hand is predicted op by op instead: `rpeg.cost.train_stage` and its siblings.
"""
