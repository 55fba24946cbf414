"""What `kvplan diff` does beside comparing: where plans come from, what fails, and reports in every form."""
