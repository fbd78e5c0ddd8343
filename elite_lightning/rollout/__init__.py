"""Engines that sample responses from a policy. They know neither domains nor objectives."""
