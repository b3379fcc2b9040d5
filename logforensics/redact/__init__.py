"""Takes out of an analysis what identifies people, machines and accounts, so that a report can be shown to anybody."""
