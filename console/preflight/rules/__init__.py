"""The rules, by subject. Each is a function of a :class:`~console.preflight.context.Context`."""
