"""Decides where pending claims can be allocated: demand, eligible nodes, drivers' answers, and why not."""
