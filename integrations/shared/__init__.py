"""The common parts of all connectors: their configuration, the served model, its plans."""
