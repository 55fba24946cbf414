"""The page of `kvplan show`: its style and scripts, and the code that puts them into one file with the data."""
