"""One Textual screen a file."""
