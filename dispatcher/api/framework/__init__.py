"""FastAPI's part: routes, their documentation and the status page. The first call that needs FastAPI loads this
package."""
