"""How a map begins: the first values, a sensor's warm-up, where hyper-parameters start."""
