"""Where the results of an output go, when a site delivers them itself."""
