"""The drivers that come with Parley, one file or folder each."""
