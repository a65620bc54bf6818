"""The doors to the scheduler, and what they share about a pod.

`pods` and `attempts` are what is remembered of it, `candidates` the nodes in question, `questions` what drivers
are asked, `talks` the same for drivers outside, `placing` what follows from a decision, `telling` what users hear.
"""
