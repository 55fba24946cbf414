"""What `make bench` measures, one module per measurement; each has `measure(pairs) -> list[Row]`."""
