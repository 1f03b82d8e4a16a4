"""testproject with django-unfold before Django's admin, as its documentation says."""

from testproject.settings import *  # noqa: F403 - all of it
from testproject.settings import INSTALLED_APPS

INSTALLED_APPS = ["unfold", *INSTALLED_APPS]
