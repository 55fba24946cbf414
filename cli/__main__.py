"""`python -m kvplan.cli` is the command `kvplan`."""

from kvplan.cli.main import main

if __name__ == "__main__":
    main(prog_name="kvplan")
