"""Where the tuples of a source come from, when a site fetches them itself."""
