"""Published experiments, one file each, which reads like the paper's section."""
