"""From YAML text to a typed model of kinds, engines and models, with every error in its place."""
