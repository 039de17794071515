"""Uses of the flow that are not part of it."""
