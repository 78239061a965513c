"""What devices there are, what they can do, and what is compiled for them."""
