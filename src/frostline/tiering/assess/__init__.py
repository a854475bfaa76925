"""What a database would gain, and what stands in the way: looked at, never changed."""
