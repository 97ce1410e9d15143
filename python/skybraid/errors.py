"""What can go wrong, by what the caller can do about it."""

from skybraid.model.errors import *  # noqa: F403 this is the public name of that module
