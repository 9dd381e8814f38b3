"""What calls do after their token and body are checked. Routes with FastAPI and without it use this package."""
