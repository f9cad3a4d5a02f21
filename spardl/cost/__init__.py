"""α–β–γ: what a collective costs, measured and modelled."""
