"""The work of calls after their token and body are checked. The routes with FastAPI and the routes without it use this
package."""
