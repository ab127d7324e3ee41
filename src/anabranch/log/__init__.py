"""The site log over NATS JetStream: records as bytes, the server, and its clients."""
