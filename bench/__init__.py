"""The measurements of `make bench`, one module each, with `measure(pairs) -> list[Row]`."""
