"""What calls take and give: bodies, problem documents, answers that may be large."""
