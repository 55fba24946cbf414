"""Names that an engine's expressions may use besides the engine's own, with their meanings."""

from __future__ import annotations

# The number of layers of a model that read another layer's cache.
SHARED = "shared_layers"
# Words that a model gives to every expression.
WORDS = ("dtype", "query_heads", "architecture", "model_type", SHARED)
# The option of engines that says how many tokens a side drafts.
DRAFT_TOKENS = "draft_tokens"
# A name for defaults of options only: the value of the engine's `kernels`.
KERNELS = "kernels"
# Names about a side; about the cache to page; about pages once they are equal; about the page of a stride.
MEASURED = {
    "states": "how many caches are states",
    "largest_state": "bytes of one layer's state on the worker that has most",
    "bytes_per_token": "bytes of one token of one layer of the widest cache, on the worker that has most",
    "unsplit": "how many caches of tokens are shared over no mesh axis",
    "shapes": "the number of different pages: heads, rows and bytes; 1 if groups are not formed `by_retention`",
    "together": "how many caches share one group at most",
    "mingled": "how many caches of tokens have layers between those of another one of their group that stores the same",
}
PAGED = {
    "token_bytes": (
        "bytes of one token of one layer of the cache that is paged, on the worker that has most; of the widest "
        "one for a state"
    ),
    "window": "tokens of the window that the cache needs, those retained beyond it included; 0 if none",
    "chunk": "tokens of the chunk that the cache needs; 0 if none",
    "ring": "tokens that the cache keeps where it is a ring; 0 if it is none",
    "own_block": "the cache's parameter `own_block`, 0 if its kind has none",
    "accepted": (
        "block sizes that the kernels accept of all caches that keep the same tokens as this one, by `kernels`; those "
        "of kinds without a rule for a state"
    ),
    "kind": "the cache's kind",
    "store": "what the cache's kind stores: `tokens` or `state`",
}  # fmt: skip
ALIKE = {
    "own_page": "bytes of one layer's page before pages are made equal; 0 if groups are not formed `by_retention`",
    "shared_page": "bytes that every page comes to, 0 where each keeps its own",
    "fully_allocated": "whether the cache keeps the blocks of all tokens, whatever of them is needed",
}
PLACED = {
    "page": "bytes of the page of one cache's layers on a worker",
    "block_bytes": "bytes that the largest group takes in one block on a worker",
}
