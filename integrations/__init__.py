"""Connectors: engines that run on kvplan. Each folder speaks one engine's interface; that engine alone imports it."""
