"""The page of a running mirror job."""
