"""The checks, by subject. Each is a pure function from facts to findings, including good ones."""
