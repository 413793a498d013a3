"""Published experiments, one file each, structured like the paper's section."""
