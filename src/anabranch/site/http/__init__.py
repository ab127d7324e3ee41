"""A site's HTTP endpoint: tuples enter and results leave by it."""
