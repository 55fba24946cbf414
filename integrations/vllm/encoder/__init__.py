"""The connector for vLLM's encoder caches: encode engines' outputs for images, videos and audio clips, for prefill.

Start with `scheduler.py`. An item is a request of the runtime: its name is a hold's, its tokens are the item's rows.
"""
