"""The parts of the campaign `faults`, a module each."""
