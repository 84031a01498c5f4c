"""Adapters to frameworks. A module imports its framework, which an extra of the package installs."""
