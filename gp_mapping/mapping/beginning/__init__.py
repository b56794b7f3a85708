"""How a map begins: what the first values are worth, a sensor that has not begun, where hyper-parameters start."""
