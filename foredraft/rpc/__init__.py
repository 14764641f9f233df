"""What both services share around their engines: gRPC, one life, one thread. No torch, no Ray."""
