"""kvplan."""
