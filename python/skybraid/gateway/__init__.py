"""Gateways under test: two daemons, and the emulator's links between them."""

from skybraid.gateway.daemons import Daemon, binary, both
from skybraid.gateway.field import Field, Node

__all__ = ["Daemon", "Field", "Node", "binary", "both"]
