"""How a client's pages relate to chunk objects, and the copies between them on the host."""
