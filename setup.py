"""Builds gp_mapping for colcon (lib/gp_mapping, share/gp_mapping) and for pip (bin, share/gp_mapping)."""

from glob import glob

from setuptools import find_packages, setup

NAME = "gp_mapping"

setup(
    name=NAME,
    version="0.1.0",
    description="Live probabilistic maps of fields, with uncertainty, for ROS 2 robots",
    license="Apache-2.0",
    maintainer="gp_mapping maintainers",
    maintainer_email="maintainers@gp-mapping.example",
    python_requires=">=3.10",
    packages=find_packages(include=[NAME, f"{NAME}.*"]),
    package_data={NAME: ["py.typed"], f"{NAME}.commands.view": ["page/*"]},
    # pip's list; rosdep reads package.xml. rclpy and messages come from ROS or from requirements/ros.txt.
    install_requires=[
        "torch>=2.1",
        "numpy>=1.26",
        "scipy>=1.11",
        "matplotlib>=3.6",
        "Pillow>=9.2",
        "PyYAML>=6.0",
        "tqdm>=4.66",
        "rosbags>=0.11",
    ],
    extras_require={
        "geotiff": ["rasterio>=1.3"],
        "fleet": ["distributed>=2024.1", "bokeh>=3.1"],  # bokeh draws Dask's dashboard
        "test": ["pytest", "hypothesis"],
    },  # colcon runs pytest only where this names it
    data_files=[
        ("share/ament_index/resource_index/packages", [f"resource/{NAME}"]),
        (f"share/{NAME}", ["package.xml"]),
        (f"share/{NAME}/launch", sorted(glob("launch/*.launch.*"))),
        (f"share/{NAME}/config", sorted(glob("config/*.yaml"))),
        (f"share/{NAME}/config/models", sorted(glob("config/models/*.yaml"))),
        (f"share/{NAME}/rviz", sorted(glob("rviz/*.rviz"))),
    ],
    zip_safe=False,
    entry_points={
        "console_scripts": [
            "gp-mapping = gp_mapping.cli:main",
            "mapping_node = gp_mapping.ros.mapping_node:main",
            "fusion_node = gp_mapping.ros.fusion_node:main",
            "simulator_node = gp_mapping.ros.simulator_node:main",
            "explorer_node = gp_mapping.ros.explorer_node:main",
            "bag_player_node = gp_mapping.ros.bag_player_node:main",
        ],
    },
)
