"""testproject with another user model and other automatic keys."""

from testproject.settings import *  # noqa: F403 - all of it
from testproject.settings import INSTALLED_APPS

INSTALLED_APPS = [*INSTALLED_APPS, "tests.admin.custom_user"]
AUTH_USER_MODEL = "custom_user.Person"
DEFAULT_AUTO_FIELD = "django.db.models.SmallAutoField"
