"""One verb a file; `kvplan VERB` loads it when it is asked for."""
