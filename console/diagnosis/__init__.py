"""The one error that matters in a log. Pure."""
