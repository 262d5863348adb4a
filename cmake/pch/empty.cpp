// An empty source file, for targets that have no other source file.
