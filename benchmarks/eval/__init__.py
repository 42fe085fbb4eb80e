"""`make eval`: how well a call goes, not how fast: what is heard, when turns end, what an interruption does."""
