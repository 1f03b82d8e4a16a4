"""relay without a Django project at hand: embedded PostgreSQL and the demo."""
