"""What relay is built, checked and shipped with, and what is shipped in it."""
