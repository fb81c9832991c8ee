"""The engine's side: RPC, HTTP, and the worker that stands for one rank."""
