"""What people do with nodes: begin, check, certify, run, watch, demonstrate."""
