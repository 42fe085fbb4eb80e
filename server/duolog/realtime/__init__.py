"""The wire: OpenAI Realtime messages, the WebSocket endpoint, HTTP routes. Translates, decides nothing about turns."""
