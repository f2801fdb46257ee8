"""Fleets that run elsewhere: registered by their registry's URL, attached, and asked how they are."""

from .instance_book import Instances
from .instance_model import RegisteredInstance, RegistryAgent, RegistryListing, Remote

__all__ = ["Instances", "RegisteredInstance", "RegistryAgent", "RegistryListing", "Remote"]
