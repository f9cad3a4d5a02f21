"""RNA: partial collectives, whose members are whoever is ready."""
