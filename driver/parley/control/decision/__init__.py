"""Whether and where pending claims can be allocated: demand, eligible nodes, the drivers' answers, and why not."""
