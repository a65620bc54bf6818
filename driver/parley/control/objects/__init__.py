"""Reads and composes the API objects that show and record allocations, mirrors and stand-ins, and reads pods.
Pure."""
