"""The pages' views: pure functions from data to elements, one file each."""
