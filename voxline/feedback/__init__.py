"""What comes back from service: captured audio, drift, clips to label, and their labels."""
