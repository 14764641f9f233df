"""What Foredraft's services say to each other: records, errors, noise, the wire contract."""
