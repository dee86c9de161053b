"""Looking at hosts again and again: samples, health, silence, and what they say of each server."""
