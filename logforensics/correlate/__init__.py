"""From the timeline to a verdict. Reads kinds, roles, categories, fields and times; never a log's text."""
