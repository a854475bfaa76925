"""The embedded stack: Java, downloads, Postgres, the gateway's process, the demo."""
