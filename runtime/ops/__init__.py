"""Observability for operators: logs, counters, Prometheus.

Start with `metrics.py`.
"""
