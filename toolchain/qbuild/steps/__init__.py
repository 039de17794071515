"""Steps: the plan, and what makes each of its results.

Belongs here: what a step is made from (and therefore its key), how it is made, and the commands
that make the same by hand.
"""
