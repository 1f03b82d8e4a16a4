"""An app with isolated tasks: only workers that are given it have a nursery."""
