"""A router in front of engines of different kinds: one OpenAI API, two engines for each request."""
