"""What pages look like: pure functions from data to elements, one file each."""
