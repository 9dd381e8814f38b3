"""What calls do once their token and body are known, with and without the framework."""
