"""What is decided in a conversation without waiting. Pure: fed events and sample counts, hands back values."""
