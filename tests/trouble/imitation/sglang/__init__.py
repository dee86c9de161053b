"""Stands in for SGLang where only its processes, its endpoints and its log matter."""
