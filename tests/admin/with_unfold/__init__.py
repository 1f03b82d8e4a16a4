"""A project whose admin is django-unfold's."""
