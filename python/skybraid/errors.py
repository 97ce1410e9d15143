"""Errors, classified by what the caller can do about them."""

from skybraid.model.errors import *  # noqa: F403 this is the public name of that module
