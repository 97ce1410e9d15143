"""Gateways under test: two daemons, connected by the emulator's links."""

from skybraid.gateway.daemons import Daemon, binary, configure_pair
from skybraid.gateway.field import Field, Node, Shell

__all__ = ["Daemon", "Field", "Node", "Shell", "binary", "configure_pair"]
