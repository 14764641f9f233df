"""What all of Foredraft's services say to each other: records, errors, noise and the wire contract."""
