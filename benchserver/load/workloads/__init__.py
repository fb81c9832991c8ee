"""What is asked: a file for each kind of workload."""
