"""What pages look like: pure functions from facts to elements, one file each."""
