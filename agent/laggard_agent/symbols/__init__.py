"""Function names out of ELF images, for `fnprofile` and `fntrace`."""
