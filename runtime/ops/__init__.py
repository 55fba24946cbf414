"""What operators see: logs, counters, Prometheus.

Start with `metrics.py`.
"""
