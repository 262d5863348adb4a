// An object file to hang the precompiled header on.
