"""Nodes in the test's own process, where a test needs to look inside; a DDS domain for each run of the tests."""

import os

import pytest

# apart from other runs on this machine, and from the domains that tests with processes of their own name themselves
DOMAINS = [*range(1, 21), *range(92, 102), *range(215, 233)]
os.environ["ROS_DOMAIN_ID"] = str(DOMAINS[os.getpid() % len(DOMAINS)])
os.environ.setdefault("ROS_AUTOMATIC_DISCOVERY_RANGE", "LOCALHOST")


@pytest.fixture
def node_of():
    """Active nodes with these parameters, and one peer; all ended at the end."""
    rclpy = pytest.importorskip("rclpy")
    from rclpy.context import Context
    from rclpy.executors import SingleThreadedExecutor
    from rclpy.parameter import Parameter
    from ros_helpers import QUICK, STARTS, Peer

    from gp_mapping.ros.mapping_node import MappingNode
    from gp_mapping.ros.wire.messages import message_class

    context, made, peers = Context(), [], []
    rclpy.init(context=context)

    def make(find=message_class, namespace="/", started=True, **parameters):
        magnetic = not {"sensor", "likelihood", "field_unit"} & parameters.keys()
        given = QUICK | (STARTS if magnetic else {}) | parameters
        overrides = [Parameter(key, value=value) for key, value in given.items()]
        node = MappingNode(
            find_message=find, context=context, parameter_overrides=overrides, namespace=namespace
        )
        made.append((node, SingleThreadedExecutor(context=context)))
        made[-1][1].add_node(node)
        node.executor_ = made[-1][1]
        if started:
            node.configure()
            node.activate()
        if not peers:
            peers.append(Peer())
        return node, peers[0]

    yield make
    for node, executor in made:
        node.cleanup()
        executor.shutdown()
        node.destroy_node()
    for peer in peers:
        peer.__exit__()
    rclpy.try_shutdown(context=context)
