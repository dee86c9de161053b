"""From a wish to a plan: what the host holds, what the engine says, which steps are needed."""
