"""Connectors: engines that run on kvplan. Each folder speaks one engine's interface; only that engine imports it."""
