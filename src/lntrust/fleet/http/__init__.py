"""The door for clients: the Open Inference Protocol v2 over HTTP."""
