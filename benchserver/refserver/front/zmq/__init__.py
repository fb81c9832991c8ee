"""The ROUTER socket, alone in the server to import zmq."""
