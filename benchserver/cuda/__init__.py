"""What both sides need of the CUDA driver: its calls, and the files that it leaves."""
