"""What connectors of all engines have in common: their configuration, the served model, its plans."""
