"""The page of `kvplan show`: its style and its scripts, and how they become one file with the data in it."""
