"""The parts of mapping_node: parameters, inputs, outputs, services, questions."""
